package model

import (
	"fmt"
	"slices"
)

// Result is what a search found.
type Result struct {
	States, Steps, Ends int
	Edges               map[string]int // token transitions by "from -> to"
	Moves               map[string]int
	Wrong               string   // the first broken promise
	Path                []string // the steps to it
}

// node is a state with the one from which it was reached first.
type node struct {
	k      key
	parent int32
}

// Search visits every state that can be reached, breadth first, so that the first wrong one has a shortest path. States
// that differ only in which user is which count as one.
func Search(l Limits, b Bugs) Result {
	r := Result{Edges: map[string]int{}, Moves: map[string]int{}}
	first := start(l)
	nodes := []node{{first.pack(), -1}}
	seen := map[key]struct{}{nodes[0].k: {}}
	var next []move
	for i := int32(0); int(i) < len(nodes); i++ {
		s := unpack(nodes[i].k)
		next = moves(&s, b, next[:0])
		if !canAct(next) {
			r.Ends++
			if wrong := atEnd(&s); wrong != "" {
				return r.fail(nodes, i, b, "", wrong)
			}
		}
		for j := range next {
			m := &next[j]
			r.Steps++
			r.Moves[m.name]++
			wrong := r.edges(&s, &m.to)
			if wrong == "" {
				wrong = always(&m.to)
			}
			if wrong != "" {
				return r.fail(nodes, i, b, m.name, wrong)
			}
			k := m.to.pack()
			if _, ok := seen[k]; !ok {
				seen[k] = struct{}{}
				nodes = append(nodes, node{k, i})
			}
		}
	}
	r.States = len(nodes)
	return r
}

// fail tells the way to a wrong state: each step again, by what it leads to.
func (r *Result) fail(nodes []node, i int32, b Bugs, last, wrong string) Result {
	r.States, r.Wrong = len(nodes), wrong
	if last != "" {
		r.Path = append(r.Path, last)
	}
	for ; i > 0; i = nodes[i].parent {
		s := unpack(nodes[nodes[i].parent].k)
		for _, m := range moves(&s, b, nil) {
			if m.to.pack() == nodes[i].k {
				r.Path = append(r.Path, m.name)
				break
			}
		}
	}
	slices.Reverse(r.Path)
	return *r
}

// canAct reports whether anything but trouble can still happen.
func canAct(next []move) bool {
	return slices.ContainsFunc(next, func(m move) bool {
		switch m.name {
		case "crash of the gateway", "crash of a consumer", "crash of the reconciler", "partition moves", "order cancelled or closed":
			return false
		}
		return true
	})
}

// edges checks the token transitions of one step against the table of package sale.
func (r *Result) edges(from, to *state) string {
	for u := range from.tokens {
		a, b := from.tokens[u], to.tokens[u]
		if a == b {
			continue
		}
		r.Edges[string(a.name())+" -> "+string(b.name())]++
		if a == unknown && b == occupied || a.name().CanBecome(b.name()) {
			continue
		}
		return fmt.Sprintf("token %d went %q -> %q", u, a.name(), b.name())
	}
	return ""
}

// always holds in every state.
func always(s *state) string {
	live := int8(0)
	for u := range s.orders {
		if s.orders[u] == unpaid {
			live++
		}
		if s.decisions[u] == ordered|refused {
			return fmt.Sprintf("token %d is both an order and a refusal", u)
		}
		if s.status[u] > 0 && s.decisions[u] == 0 {
			return fmt.Sprintf("token %d has a status in redis and no decision", u)
		}
		if s.tokens[u] == released && s.orders[u] == unpaid {
			return fmt.Sprintf("token %d is released and its order counts", u)
		}
	}
	switch {
	case live != s.sold || s.sold > units:
		return fmt.Sprintf("%d orders count, sold_count %d, of %d", live, s.sold, units)
	case s.stock+s.count(occupied)+s.count(committed) != units:
		return fmt.Sprintf("balance of redis: stock %d, occupied %d, committed %d, of %d", s.stock, s.count(occupied), s.count(committed), units)
	case s.stock+s.sold > units:
		return fmt.Sprintf("stock %d and sold %d, of %d", s.stock, s.sold, units)
	}
	return ""
}

// atEnd holds when nothing but trouble can still happen.
func atEnd(s *state) string {
	for u := range s.tokens {
		switch {
		case s.acked[u] && s.decisions[u] == 0:
			return fmt.Sprintf("user %d was answered 202 and has no outcome", u)
		case s.tokens[u] == occupied:
			return fmt.Sprintf("token %d stays occupied", u)
		case s.backs[u] == backDue:
			return fmt.Sprintf("the unit of token %d never came back", u)
		case s.decisions[u] != 0 && s.status[u] < max(1, s.versions[u]):
			return fmt.Sprintf("token %d: redis shows version %d, the database has %d", u, s.status[u], s.versions[u])
		case s.decisions[u] != 0 && s.heard[u] < max(1, s.versions[u]):
			return fmt.Sprintf("user %d has heard version %d of %d", u, s.heard[u], s.versions[u])
		}
	}
	if s.stock+s.sold != units {
		return fmt.Sprintf("stock %d and sold %d at the end, of %d", s.stock, s.sold, units)
	}
	return ""
}
