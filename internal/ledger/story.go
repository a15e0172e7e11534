package ledger

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/sale"
)

// StoryOf reads all log rows of a token whoever's it is, by version, for operators. Empty when the token is undecided.
func (l *Ledger) StoryOf(ctx context.Context, token string) ([]sale.Step, error) {
	if !sale.ValidToken(token) {
		return nil, nil
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	for n := range sale.Tables {
		var owner int64
		err := l.d.classify(l.read.QueryRowContext(ctx, "SELECT user_id FROM "+logTable(n)+" WHERE token = ? LIMIT 1", token).Scan(&owner))
		if errors.Is(err, sale.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("story of a token: %w", err)
		}
		rows, err := l.TokenStory(ctx, owner, token)
		if err != nil {
			return nil, err
		}
		steps := make([]sale.Step, len(rows))
		for i, g := range rows {
			steps[i] = sale.Step{
				Token: g.Token, Version: g.Version, UserID: g.UserID, From: g.From, To: g.To, Status: g.Status,
				Reason: g.Reason, Role: g.Role, Node: g.Node, TraceID: g.TraceID, At: g.At,
			}
		}
		return steps, nil
	}
	return nil, nil
}
