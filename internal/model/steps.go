package model

// Bugs are mistakes to plant, so that a test can prove that the search would find them.
type Bugs struct {
	DecisionNotUnique bool // a consumer writes its decision without the unique row
	RelayReleases     bool // the relay gives the unit back instead of publishing
	OffsetPastHole    bool // the offset is committed before the message is decided
	NotYetIsDone      bool // a return that finds the token occupied is marked as done
	RepeatNotSettled  bool // what was decided before is acknowledged without settling it again
	StatusUnchecked   bool // settling writes the status without looking at its version
}

// Limits bound what may happen more than once, each at most 3. One crash of each process is always allowed.
type Limits struct {
	Losses      int8 // publishes that are not acknowledged: lost, or delivered late
	Repeats     int8 // of requests by their users
	Cancels     int8 // of orders, by their users or by their deadlines
	EarlyRelays int8 // relays of tokens whose message is still in the queue
	Refusals    int8 // by the database, for a reason of its own
	Moves       int8 // of the partition from one consumer to the other
}

// move is one possible step: its name and the state after it.
type move struct {
	name string
	to   state
}

// moves lists all that can happen in a state.
func moves(s *state, b Bugs, out []move) []move {
	for u := range int8(users) {
		out = gateway(s, u, out)
		out = user(s, u, out)
		out = network(s, u, out)
		out = reconciler(s, u, b, out)
	}
	for c := range int8(len(s.consumers)) {
		out = consume(s, c, b, out)
	}
	out = finishJob(s, b, out)
	return crash(s, out)
}

func add(out []move, name string, to state) []move { return append(out, move{name, to}) }

// gateway is admission (R9): reserve, publish, answer.
func gateway(s *state, u int8, out []move) []move {
	switch s.requests[u] {
	case idle:
		n := *s
		if n.stock == 0 {
			n.requests[u] = turned
			return add(out, "gateway: sold out", n)
		}
		n.stock--
		n.tokens[u], n.requests[u] = occupied, reserved
		return add(out, "gateway: reserve", n)
	case reserved:
		n := *s
		if n.publish(u) {
			n.requests[u], n.acked[u] = accepted, true
			out = add(out, "gateway: publish, answer 202", n)
		}
		if s.left.Losses == 0 {
			return out
		}
		n = *s
		n.left.Losses--
		n.requests[u] = pending
		out = add(out, "gateway: publish lost, answer pending", n)
		if !n.late[u] {
			n.late[u] = true
			out = add(out, "gateway: publish not acknowledged, answer pending", n)
		}
	case pending:
		if s.left.Repeats == 0 {
			return out
		}
		n := *s
		n.left.Repeats--
		if n.tokens[u] == occupied {
			n.requests[u] = reserved // a repeat that finds its token occupied publishes again
			return add(out, "gateway: repeat finds it occupied", n)
		}
		n.heard[u] = max(n.heard[u], n.status[u])
		n.requests[u] = accepted
		return add(out, "gateway: repeat finds it decided", n)
	}
	return out
}

// user cancels an order, or its deadline passes: the database first; telling is the reconciler's.
func user(s *state, u int8, out []move) []move {
	if s.orders[u] != unpaid || s.left.Cancels == 0 {
		return out
	}
	n := *s
	n.left.Cancels--
	n.orders[u], n.backs[u] = ended, backDue
	n.versions[u]++
	n.sold--
	return add(out, "order cancelled or closed", n)
}

// network delivers a late message, or never does.
func network(s *state, u int8, out []move) []move {
	if !s.late[u] {
		return out
	}
	n := *s
	n.late[u] = false
	out = add(out, "late publish lost", n)
	if n.publish(u) {
		out = add(out, "late publish delivered", n)
	}
	return out
}

// consume is one consumer: fetch, look up, decide, settle, tell, commit (R1, R2, R3).
func consume(s *state, c int8, b Bugs, out []move) []move {
	k := s.consumers[c]
	n := *s
	m := &n.consumers[c]
	switch k.step {
	case waiting:
		if s.owner != c || s.length == 0 {
			return out
		}
		*m = consumer{step: fetched, token: s.log[0]}
		if b.OffsetPastHole {
			n.commit(1)
		}
		return add(out, "consumer: fetch", n)
	case fetched:
		m.step = lookedUp
		if s.decisions[k.token] != 0 {
			if m.step = decided; b.RepeatNotSettled {
				m.step = told
			}
		}
		return add(out, "consumer: look up", n)
	case lookedUp:
		return decide(s, c, b, out)
	case decided:
		settle(&n, k.token, b)
		m.step = settled
		return add(out, "consumer: settle", n)
	case settled:
		n.heard[k.token] = max(n.heard[k.token], max(1, n.versions[k.token]))
		m.step = told
		return add(out, "consumer: tell", n)
	}
	*m = consumer{}
	if s.owner == c && k.at >= 0 && !b.OffsetPastHole {
		n.commit(k.at + 1)
	}
	return add(out, "consumer: commit the offset", n)
}

// decide is the deciding transaction: the unique row of the token, the order, the conditional stock.
func decide(s *state, c int8, b Bugs, out []move) []move {
	u := s.consumers[c].token
	n := *s
	n.consumers[c].step = decided
	if s.decisions[u] != 0 && !b.DecisionNotUnique {
		n.consumers[c].step = fetched // the unique row is there: roll back, look up again
		return add(out, "consumer: decided by another meanwhile", n)
	}
	if s.left.Refusals > 0 {
		r := n
		r.decisions[u] |= refused
		r.left.Refusals--
		out = add(out, "consumer: refuse", r)
	}
	if s.sold == units || s.orders[u] != noOrder {
		n.decisions[u] |= refused
		return add(out, "consumer: sold out at the database", n)
	}
	n.decisions[u] |= ordered
	n.orders[u], n.versions[u] = unpaid, 1
	n.sold++
	return add(out, "consumer: order", n)
}

// settle carries a decision over to Redis (R4-R6).
func settle(n *state, u int8, b Bugs) {
	isOrder := n.decisions[u]&ordered != 0
	if n.tokens[u] == occupied {
		if n.tokens[u] = released; isOrder {
			n.tokens[u] = committed
		} else {
			n.stock++
		}
	}
	if b.StatusUnchecked {
		n.status[u] = 1
		return
	}
	n.status[u] = max(n.status[u], max(1, n.versions[u]))
}

// reconciler begins a relay, or gives a unit back (R5, R17).
func reconciler(s *state, u int8, b Bugs, out []move) []move {
	if s.job != noJob {
		return out
	}
	if s.tokens[u] == occupied && s.requests[u] != reserved {
		if n := *s; !s.queued(u) || s.left.EarlyRelays > 0 {
			if s.queued(u) {
				n.left.EarlyRelays--
			}
			n.job, n.jobOf = relays, u
			out = add(out, "reconciler: reads an occupied token", n)
		}
	}
	if s.backs[u] != backDue {
		return out
	}
	n := *s
	switch {
	case s.tokens[u] == committed:
		n.tokens[u] = released
		n.stock++
	case s.tokens[u] != released && !b.NotYetIsDone:
		return out // not yet
	}
	n.status[u] = max(n.status[u], n.versions[u])
	n.job, n.jobOf = returns, u
	return add(out, "reconciler: returns a unit", n)
}

// finishJob is the second half of what the reconciler does.
func finishJob(s *state, b Bugs, out []move) []move {
	n := *s
	u := s.jobOf
	n.job, n.jobOf = noJob, 0
	switch {
	case s.job == relays && b.RelayReleases:
		if n.tokens[u] == occupied {
			n.tokens[u] = released
			n.stock++
		}
		return add(out, "reconciler: releases", n)
	case s.job == relays:
		if n.publish(u) {
			return add(out, "reconciler: publishes again", n)
		}
		return out
	case s.job == returns:
		n.backs[u] = backDone
		n.heard[u] = max(n.heard[u], n.versions[u])
		return add(out, "reconciler: marks it returned", n)
	}
	return out
}

// crash ends a process once, at any point; and the partition may change hands.
func crash(s *state, out []move) []move {
	if !s.crashes[gatewayCrash] {
		n := *s
		n.crashes[gatewayCrash] = true
		for u := range n.requests {
			if n.requests[u] == reserved {
				n.requests[u] = pending
			}
		}
		out = add(out, "crash of the gateway", n)
	}
	if !s.crashes[consumerCrash] {
		for c := range s.consumers {
			if s.consumers[c].step != waiting {
				n := *s
				n.crashes[consumerCrash], n.consumers[c] = true, consumer{}
				out = add(out, "crash of a consumer", n)
			}
		}
	}
	if !s.crashes[reconcilerCrash] && s.job != noJob {
		n := *s
		n.crashes[reconcilerCrash], n.job, n.jobOf = true, noJob, 0
		out = add(out, "crash of the reconciler", n)
	}
	if s.left.Moves > 0 {
		n := *s
		n.owner, n.left.Moves = 1-n.owner, n.left.Moves-1
		out = add(out, "partition moves", n)
	}
	return out
}
