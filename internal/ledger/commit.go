package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"seckill/internal/sale"
)

// maxRedo bounds how often one reservation is decided anew because something else was decided between its lookup
// and its insert, or because its order number was taken. Each round has a new cause; two are usual at most.
const maxRedo = 8

// lookup says what a transaction reads before it writes, and how it decides.
type lookup int

const (
	// tokensOnly looks up the tokens of the batch, and leaves it to the unique key to find a user's order under
	// another token: Redis lets hardly any through, and the look-up would cost every batch a fifth of its time.
	tokensOnly     lookup = iota
	tokensAndUsers        // look up the users' orders as well
	andSoldOut            // and refuse as sold out what would become an order
	andRefuse             // and refuse as invalid what is not decided yet
)

// MessageError is returned by Commit when one message of a batch can never be decided. The messages before it
// are decided; the caller parks this one and calls again without it.
type MessageError struct {
	Index int // in the batch
	Token string
	Err   error
}

// Error names the message.
func (e *MessageError) Error() string {
	return fmt.Sprintf("commit message %d, token %.64q: %v", e.Index, e.Token, e.Err)
}

// Unwrap returns the cause.
func (e *MessageError) Unwrap() error { return e.Err }

// Commit decides a batch of reservations and returns one decision for each, in the order of the batch (R1, R7,
// R10). The whole batch is one transaction: known tokens are looked up, each new decision is a row of version 1
// in the token log, orders are rows of the order tables, and one conditional update for each commodity adds what
// was really inserted. When a unique key or the stock update refuses the batch, it is rolled back and each message
// gets a transaction of its own, so that one bad message costs only itself. (Duplicate users get one more try as a
// batch, with their orders looked up.)
//
// A token that was decided before, by whomever, is answered with the decision that stands and Repeated set. A
// message that could not be stored (malformed ids, a token that belongs to another user) is answered with a
// refusal as invalid and leaves no row; package queue lets none through.
//
// Errors: sale.ErrTransient (also when the outcome of the commit is unknown, or the sale's epoch changed
// meanwhile): call again with the same batch; *MessageError: one message is at fault.
func (l *Ledger) Commit(ctx context.Context, batch []sale.Pending) ([]sale.Decision, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if len(batch) > l.opt.MaxBatch {
		return nil, fmt.Errorf("commit: %d reservations, at most %d", len(batch), l.opt.MaxBatch)
	}
	batch = slices.Clone(batch) // order numbers may be drawn into it
	out, err := l.commitTx(ctx, batch, tokensOnly)
	if errors.Is(err, errDuplicate) || errors.Is(err, errLookCloser) {
		out, err = l.commitTx(ctx, batch, tokensAndUsers)
	}
	if err == nil {
		return out, nil
	}
	if errors.Is(err, sale.ErrTransient) {
		return nil, fmt.Errorf("commit %d reservations: %w", len(batch), err)
	}
	out = make([]sale.Decision, len(batch))
	for i := range batch {
		if out[i], err = l.commitOne(ctx, batch[i]); errors.Is(err, sale.ErrTransient) {
			return nil, fmt.Errorf("commit reservation %d of %d: %w", i+1, len(batch), err)
		} else if err != nil {
			return nil, &MessageError{Index: i, Token: batch[i].Token, Err: err}
		}
	}
	return out, nil
}

// commitOne decides one reservation in a transaction of its own.
func (l *Ledger) commitOne(ctx context.Context, p sale.Pending) (sale.Decision, error) {
	how := tokensAndUsers
	for range maxRedo {
		out, err := l.commitTx(ctx, []sale.Pending{p}, how)
		switch {
		case err == nil:
			return out[0], nil
		case errors.Is(err, errSoldOut):
			how = andSoldOut // next: the refusal, unless something else was decided meanwhile
		case errors.Is(err, errDuplicate):
			// Somebody decided this token, or another one of this user, after our lookup: the next lookup finds
			// it. Or the order number is taken, which says nothing about the purchase (FS-096).
			if err := l.freshOrderNo(ctx, &p); err != nil {
				return sale.Decision{}, err
			}
		default:
			return sale.Decision{}, err
		}
	}
	return sale.Decision{}, fmt.Errorf("still contended after %d rounds: %w", maxRedo, sale.ErrTransient)
}

// Refuse decides one reservation as a refusal, reason invalid, unless it is decided already: for a message that failed
// again and again and would else stay undecided for ever (R18). Errors as of Commit.
func (l *Ledger) Refuse(ctx context.Context, p sale.Pending) (sale.Decision, error) {
	for range maxRedo {
		out, err := l.commitTx(ctx, []sale.Pending{p}, andRefuse)
		if err == nil {
			return out[0], nil
		}
		if !errors.Is(err, errDuplicate) { // decided meanwhile: the next look-up finds it
			return sale.Decision{}, fmt.Errorf("refuse reservation: %w", err)
		}
	}
	return sale.Decision{}, fmt.Errorf("refuse reservation: still contended: %w", sale.ErrTransient)
}

// freshOrderNo draws another order number if the given one is another token's.
func (l *Ledger) freshOrderNo(ctx context.Context, p *sale.Pending) error {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var token string
	q := "SELECT request_token FROM " + orderTable(sale.TableOf(p.UserID)) + " WHERE order_no = ?"
	err := l.d.classify(l.primary.QueryRowContext(ctx, q, p.OrderNo).Scan(&token))
	switch {
	case errors.Is(err, sale.ErrNotFound), err == nil && token == p.Token:
		return nil
	case err != nil:
		return err
	case l.opt.NewOrderNo == nil:
		return fmt.Errorf("order number %s: %w", p.OrderNo, ErrOrderNoTaken)
	}
	p.OrderNo = l.opt.NewOrderNo(p.UserID)
	return nil
}

// commitTx decides a batch in one transaction. Besides the errors of inTx it returns errDuplicate and errSoldOut.
func (l *Ledger) commitTx(ctx context.Context, batch []sale.Pending, how lookup) ([]sale.Decision, error) {
	p := newPlan(l, batch, how)
	err := l.inTx(ctx, func(ctx context.Context, t tx) error {
		if err := p.readLog(ctx, t); err != nil {
			return fmt.Errorf("look up tokens: %w", err)
		}
		if err := p.readActivities(ctx, t); err != nil {
			return fmt.Errorf("read activities: %w", err)
		}
		if err := p.readOrders(ctx, t); err != nil {
			return fmt.Errorf("look up orders: %w", err)
		}
		for i := range batch {
			if err := p.decide(i); err != nil {
				return err
			}
		}
		return p.write(ctx, t)
	})
	if err != nil {
		return nil, err
	}
	return p.out, nil
}
