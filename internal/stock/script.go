package stock

import (
	"context"
	"crypto/sha1" // the digest that EVALSHA is defined by
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// script is one Lua file and the digest Redis knows it by.
type script struct {
	name, source, digest string
}

func newScript(name, source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{name: name, source: source, digest: hex.EncodeToString(sum[:])}
}

//go:embed lua/reserve.lua
var reserveSource string

//go:embed lua/limit.lua
var limitSource string

//go:embed lua/quota.lua
var quotaSource string

//go:embed lua/settle.lua
var settleSource string

//go:embed lua/return.lua
var returnSource string

//go:embed lua/status.lua
var statusSource string

//go:embed lua/begin.lua
var beginSource string

//go:embed lua/wipe.lua
var wipeSource string

//go:embed lua/restore.lua
var restoreSource string

//go:embed lua/open.lua
var openSource string

//go:embed lua/meta.lua
var metaSource string

//go:embed lua/list.lua
var listSource string

//go:embed lua/seq.lua
var seqSource string

//go:embed lua/audit.lua
var auditSource string

//go:embed lua/repair.lua
var repairSource string

//go:embed lua/promote.lua
var promoteSource string

//go:embed lua/mark.lua
var markSource string

//go:embed lua/take.lua
var takeSource string

//go:embed lua/wait.lua
var waitSource string

// scripts are all scripts of the package; they never change after New.
type scripts struct {
	reserve, limit, quota, settle, giveBack, status            *script
	begin, wipe, restore, open, meta, list, seq, audit, repair *script
	promote, wait, mark, take                                  *script
}

func loadScripts() scripts {
	return scripts{
		reserve: newScript("reserve", reserveSource), limit: newScript("limit", limitSource),
		quota: newScript("quota", quotaSource), settle: newScript("settle", settleSource),
		giveBack: newScript("return", returnSource), status: newScript("status", statusSource),
		begin: newScript("begin", beginSource), wipe: newScript("wipe", wipeSource), restore: newScript("restore", restoreSource),
		open: newScript("open", openSource), meta: newScript("meta", metaSource),
		list: newScript("list", listSource), seq: newScript("seq", seqSource),
		audit: newScript("audit", auditSource), repair: newScript("repair", repairSource),
		promote: newScript("promote", promoteSource), wait: newScript("wait", waitSource), mark: newScript("mark", markSource),
		take: newScript("take", takeSource),
	}
}

// scriptArgs gathers the keys and arguments of one script call. The texts lie one after another in one buffer, and
// the command gets pointers to them: one allocation for all instead of two for each, which counts at 256 requests
// with three keys each (P9).
type scriptArgs struct {
	text []byte
	ends []int
	keys int // the first so many are keys
}

func newScriptArgs(parts, bytes int) *scriptArgs {
	return &scriptArgs{text: make([]byte, 0, bytes), ends: make([]int, 0, parts)}
}

// key adds a key. All keys come before the first argument.
func (a *scriptArgs) key(k string) {
	a.str(k)
	a.keys++
}

// keyOf adds prefix + middle + id as a key, without building it first.
func (a *scriptArgs) keyOf(prefix, middle, id string) {
	a.text = append(append(a.text, prefix...), middle...)
	a.str(id)
	a.keys++
}

// keyOfInt is keyOf with a number at the end.
func (a *scriptArgs) keyOfInt(prefix, middle string, id int64) {
	a.text = append(append(a.text, prefix...), middle...)
	a.int(id)
	a.keys++
}

func (a *scriptArgs) str(s string) {
	a.text = append(a.text, s...)
	a.ends = append(a.ends, len(a.text))
}

func (a *scriptArgs) int(n int64) {
	a.text = strconv.AppendInt(a.text, n, 10)
	a.ends = append(a.ends, len(a.text))
}

func (a *scriptArgs) flag(b bool) {
	if b {
		a.str("1")
	} else {
		a.str("0")
	}
}

// clock adds the present time as epoch milliseconds of exactly 13 digits, which the user windows are made of.
func (a *scriptArgs) clock(now time.Time) {
	ms := max(now.UnixMilli(), 0)
	for rest := ms; rest < 1_000_000_000_000 && rest > 0; rest *= 10 {
		a.text = append(a.text, '0')
	}
	a.int(ms)
}

// millis adds a time as epoch milliseconds, or "" for the zero time.
func (a *scriptArgs) millis(t time.Time) {
	if t.IsZero() {
		a.str("")
	} else {
		a.int(t.UnixMilli())
	}
}

// command makes the argument list of EVALSHA.
func (a *scriptArgs) command(digest string) []any {
	all := string(a.text)
	texts := make([]string, len(a.ends))
	args := make([]any, 3, 3+len(a.ends))
	args[0], args[1], args[2] = "evalsha", digest, a.keys
	from := 0
	for i, to := range a.ends {
		texts[i] = all[from:to]
		args = append(args, &texts[i])
		from = to
	}
	return args
}

// run calls a script, in full when the server does not know its digest (FS-011), and returns its array.
func (s *Store) run(ctx context.Context, sc *script, a *scriptArgs) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	start := s.o.Now()
	args := a.command(sc.digest)
	cmd := redis.NewCmd(ctx, args...)
	err := s.rdb.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = redis.NewCmd(ctx, sc.inFull(args)...)
		err = s.rdb.Process(ctx, cmd)
	}
	if s.o.OnCall != nil {
		s.o.OnCall(sc.name, s.o.Now().Sub(start), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s script: %w", sc.name, classify(err))
	}
	reply, ok := cmd.Val().([]any)
	if !ok {
		return nil, fmt.Errorf("%s script: answered %T, not an array", sc.name, cmd.Val())
	}
	return reply, nil
}

// inFull turns EVALSHA arguments into EVAL arguments.
func (sc *script) inFull(args []any) []any {
	full := append([]any(nil), args...)
	full[0], full[1] = "eval", sc.source
	return full
}

func isNoScript(err error) bool {
	return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
}

// refusals are the beginnings of errors with which Redis refuses a command whole: nothing has happened.
var refusals = [...]string{
	"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY",
	"NOSCRIPT", "NOAUTH", "WRONGPASS", "NOPERM", "ERR max number of clients",
}

// classify wraps an error of Redis: sale.ErrTransient when the command was certainly refused whole,
// sale.ErrUncertain when it may have run. Neither is ever "sold out" (FS-015).
func classify(err error) error {
	if err == nil || errors.Is(err, sale.ErrTransient) || errors.Is(err, sale.ErrUncertain) {
		return err
	}
	for _, prefix := range refusals {
		if redis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("%w: %w", sale.ErrTransient, err)
		}
	}
	var answered redis.Error
	if errors.As(err, &answered) && !errors.Is(err, redis.Nil) {
		return err // the server answered; trying again would get the same
	}
	return fmt.Errorf("%w: %w", sale.ErrUncertain, err)
}

// number reads one element of a reply; a reply of another shape is a broken script, not a broken sale.
func number(reply []any, i int) (int64, error) {
	if i < len(reply) {
		switch v := reply[i].(type) {
		case int64:
			return v, nil
		case string:
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("reply element %d of %d: no number", i, len(reply))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
