package stock

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// FS-012: every key that a script touches is one of its KEYS, none is built from an argument.
func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) != 19 {
		t.Fatalf("%d scripts (%v)", len(files), err)
	}
	called := regexp.MustCompile(`\b(?:call|pcall)\('([A-Z]+)', *([^,()]+(?:\(KEYS)?)`)
	fromKeys := regexp.MustCompile(`^(KEYS\[|unpack\(KEYS$)`)
	named := regexp.MustCompile(`local ([a-z, ]+) = (KEYS\[[^\]]+\](?:, KEYS\[[^\]]+\])*)`)
	kept := regexp.MustCompile(`(\w+)\[[^\]]+\] = (\w+)`)
	taken := regexp.MustCompile(`(\w+) = (\w+)\[`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(source)
		names := map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			for _, n := range strings.Split(m[1], ",") {
				names[strings.TrimSpace(n)] = true
			}
		}
		// A key kept in a table, and taken out again under another name. (point in settle.lua and create in reserve.lua
		// hand a key on under the same name.)
		for _, put := range kept.FindAllStringSubmatch(text, -1) {
			if names[put[2]] {
				for _, got := range taken.FindAllStringSubmatch(text, -1) {
					names[got[1]] = names[got[1]] || got[2] == put[1]
				}
			}
		}
		calls := called.FindAllStringSubmatch(text, -1)
		if len(calls) == 0 {
			t.Errorf("%s: no call found", file)
		}
		for _, m := range calls {
			if !fromKeys.MatchString(m[2]) && !names[m[2]] {
				t.Errorf("%s: %s touches %s, which is none of KEYS", file, m[1], m[2])
			}
		}
		for _, want := range []string{"-- KEYS", "-- ARGV", "-- Returns"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the header lacks %q", file, want)
			}
		}
		if strings.Contains(text, "'TIME'") {
			t.Errorf("%s asks the server for the time", file)
		}
	}
}

// keySpy records the keys of every script call.
type keySpy struct{ calls [][]string }

func (s *keySpy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *keySpy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *keySpy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" {
			n, _ := args[2].(int)
			var keys []string
			for _, a := range args[3 : 3+n] {
				if p, ok := a.(*string); ok {
					keys = append(keys, *p)
				}
			}
			if len(keys) != n {
				keys = nil
			}
			s.calls = append(s.calls, keys)
		}
		return next(ctx, cmd)
	}
}

// FS-012: all keys of one call share a slot, for a hundred sales, users and items.
func TestKeysOfOneCallShareASlot(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	spy := &keySpy{}
	rdb.AddHook(spy)
	s := New(rdb, Options{})
	now := time.Now()
	slots := map[uint16]bool{}
	for i := range 100 {
		spy.calls = nil
		a := activityNo(i, now)
		everyScript(t, s, a, now)
		for _, keys := range spy.calls {
			if len(keys) == 0 {
				t.Fatal("a call without keys")
			}
			first := slot(keys[0])
			slots[first] = true
			for _, k := range keys {
				if slot(k) != first {
					t.Fatalf("%s and %s are in different slots", keys[0], k)
				}
			}
		}
		if len(spy.calls) < 15 {
			t.Fatalf("%d script calls", len(spy.calls))
		}
	}
	if len(slots) < 90 {
		t.Fatalf("a hundred sales share %d slots", len(slots))
	}
}

func activityNo(i int, now time.Time) sale.Activity {
	id := []string{"ACT", "act_2024-", "x", "0"}[i%4] + strings.Repeat("z", i%7) + string(rune('a'+i%26)) + string(rune('A'+i/26))
	return sale.Activity{
		ID: id, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), State: sale.StateScheduled, Epoch: 1,
		PayWithin: time.Minute, Items: []sale.Item{
			{CommodityID: "SP" + id, Price: decimal.New(990, -2), Total: 10, MaxPerUser: 1},
			{CommodityID: "SQ" + id, Price: decimal.New(1, 0), Total: 10, MaxPerUser: 1},
		},
	}
}

// everyScript calls each script once.
func everyScript(t *testing.T, s *Store, a sale.Activity, now time.Time) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d := sale.Decision{Reservation: sale.Reservation{Token: "old", UserID: 5, CommodityID: a.Items[0].CommodityID, Quantity: 1},
		Ordered: true, Status: sale.StatusPaid, Version: 2}
	must(s.BeginRebuild(ctx, a, 1))
	must(s.FinishRebuild(ctx, &sale.Snapshot{Activity: a, Blocked: []int64{9}, Entries: []sale.SnapshotEntry{{Decision: d, Returned: -1}}}, 1))
	var reqs []sale.ReserveRequest
	for u := range int64(100) {
		reqs = append(reqs, sale.ReserveRequest{Token: "t" + a.ID + string(rune('a'+u%26)), UserID: u*7919 + 1,
			CommodityID: a.Items[u%2].CommodityID, Quantity: 1})
	}
	_, err := s.Reserve(ctx, a.ID, now, reqs)
	must(err)
	_, _, err = s.Limit(ctx, a.ID, 77, now)
	must(err)
	_, err = s.SystemQuota(ctx, now, 1)
	must(err)
	_, err = s.Settle(ctx, a.ID, []sale.Decision{d})
	must(err)
	_, _, err = s.Return(ctx, a.ID, []sale.Return{{Token: "old", UserID: 5, CommodityID: a.Items[0].CommodityID, Status: sale.StatusClosed, Version: 3}})
	must(err)
	_, err = s.SetStatus(ctx, []sale.UserResult{{UserID: 5, Result: sale.Result{RequestToken: "old", ActivityID: a.ID, Status: sale.StatusPaid, Version: 4}}})
	must(err)
	must(s.SetMeta(ctx, &a))
	must(s.SetUserList(ctx, a.ID, "blocked", 3, true))
	_, _, err = s.RaiseSeq(ctx, a.ID)
	must(err)
	look, err := s.Audit(ctx, a.ID, []string{a.Items[0].CommodityID}, []string{"old"})
	must(err)
	must(s.Repair(ctx, a.ID, look.Epoch, look.Seq, map[string]int64{a.Items[0].CommodityID: 1}))
}

// slot is the cluster slot of a key, written from the cluster specification: CRC16/XMODEM of the text between the
// first { and the next }, modulo 16384.
func slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func TestSlotKnowsTheSpecification(t *testing.T) {
	t.Parallel()
	if slot("123456789") != 12739 || slot("foo{123456789}bar") != 12739 { // 0x31C3, the check value of the specification
		t.Fatal(slot("123456789"))
	}
}
