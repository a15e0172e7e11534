package stock

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// Marks reads every participation mark of a sale, by scan in small steps. Marks that come or go meanwhile may or may
// not be among them.
func (s *Store) Marks(ctx context.Context, activityID string) (map[int64]string, error) {
	k, err := keysOf(activityID)
	if err != nil {
		return nil, fmt.Errorf("read marks: %w", err)
	}
	prefix := k.prefix + "user:"
	out := map[int64]string{}
	err = s.scan(ctx, prefix+"*", func(ctx context.Context, node redis.UniversalClient, names []string) error {
		pipe := node.Pipeline()
		cmds := make([]*redis.StringCmd, len(names))
		for i, name := range names {
			cmds[i] = pipe.Get(ctx, name)
		}
		_, _ = pipe.Exec(ctx) // each command is looked at below
		for i, name := range names {
			user, err := sale.ParseUserID(strings.TrimPrefix(name, prefix))
			if err != nil {
				continue
			}
			token, err := cmds[i].Result()
			if err == nil {
				out[user] = token
			} else if err != redis.Nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { //nolint:errorlint // the client returns Nil bare
				return classify(err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read marks: %w", err)
	}
	return out, nil
}

// SetMark makes the mark of a user name a token, or removes it when token is "", if it still names was ("" for none):
// sale.ErrConflict otherwise, and while the sale is not ready.
func (s *Store) SetMark(ctx context.Context, activityID string, userID int64, was, token string) error {
	k, err := keysOf(activityID)
	if err != nil {
		return fmt.Errorf("set mark: %w", err)
	}
	a := newScriptArgs(6, 384)
	a.key(k.meta())
	a.key(k.participants())
	a.key(k.mark(userID))
	a.int(userID)
	a.str(was)
	a.str(token)
	floor := s.floor(activityID)
	reply, err := s.run(ctx, s.sc.mark, a)
	if err != nil {
		return fmt.Errorf("set mark: %w", err)
	}
	if err := s.outcome(activityID, floor, reply); err != nil {
		return fmt.Errorf("set mark: %w", err)
	}
	return nil
}
