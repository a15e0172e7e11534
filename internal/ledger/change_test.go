package ledger_test

import (
	"testing"
)

// S39: the link is cut right after the COMMIT of a change of stock was sent, applied or not. The ledger repeats the
// change by itself, and it counts once.
func TestUnknownCommitOfStockChange(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t, database.dsn(t))
	l := openDSN(t, dsn, nil)
	for _, cut := range []commitCut{cutAfter, cutBefore, cutMidWait} {
		s := newStall(t, l, 10)
		total := int64(10) // taking 12 of 15 a second time would be refused
		for _, delta := range []int64{5, -12} {
			before := p.done()
			p.arm(cut)
			got, err := l.ChangeStock(t.Context(), s.id, "C0", delta)
			if total += delta; err != nil || got != total || p.done() != before+1 {
				t.Fatalf("%+d: total %d, %v; want %d", delta, got, err, total)
			}
			b, err := l.Balance(t.Context(), s.id)
			if err != nil || b[0].Total != total {
				t.Fatalf("%+d: stored total %d, %v; want %d", delta, b[0].Total, err, total)
			}
		}
	}
}
