package model

// key is a state, packed. Two states have the same key only if they are equal but for the names of the users.
type key [2]uint64

// coder writes fields into a key, or reads them from it, in the same order.
type coder struct {
	k    key
	at   uint
	read bool
}

// field passes one small number through the key.
func field[T ~uint8 | ~int8](c *coder, v *T, bits uint) {
	word, shift := c.at/64, c.at%64
	if shift+bits > 64 {
		c.at += 64 - shift
		word, shift = c.at/64, 0
	}
	c.at += bits
	if c.read {
		*v = T(c.k[word] >> shift & (1<<bits - 1))
		return
	}
	c.k[word] |= uint64(uint8(*v)) & (1<<bits - 1) << shift
}

func flag(c *coder, v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	field(c, &n, 1)
	*v = n == 1
}

// userFields are the fields of one user: 19 bits.
func (s *state) userFields(c *coder, u int) {
	field(c, &s.tokens[u], 2)
	field(c, &s.status[u], 2)
	field(c, &s.decisions[u], 2)
	field(c, &s.orders[u], 2)
	field(c, &s.backs[u], 2)
	field(c, &s.versions[u], 2)
	field(c, &s.heard[u], 2)
	field(c, &s.requests[u], 3)
	flag(c, &s.late[u])
	flag(c, &s.acked[u])
}

func (s *state) fields(c *coder) {
	for u := range users {
		s.userFields(c, u)
	}
	field(c, &s.stock, 2)
	field(c, &s.sold, 2)
	for k := range s.consumers {
		field(c, &s.consumers[k].step, 3)
		at := uint8(s.consumers[k].at + 8)
		field(c, &at, 4)
		s.consumers[k].at = int8(at) - 8
		field(c, &s.consumers[k].token, 2)
	}
	field(c, &s.length, 3)
	for i := range s.log {
		field(c, &s.log[i], 2)
	}
	field(c, &s.owner, 1)
	field(c, &s.job, 2)
	field(c, &s.jobOf, 2)
	for _, n := range []*int8{&s.left.Losses, &s.left.Repeats, &s.left.Cancels, &s.left.EarlyRelays, &s.left.Refusals, &s.left.Moves} {
		field(c, n, 2)
	}
	for i := range s.crashes {
		flag(c, &s.crashes[i])
	}
}

// pack names the users in an order that follows from what they have done, and packs the state.
func (s *state) pack() key {
	s.sort()
	var c coder
	s.fields(&c)
	return c.k
}

func unpack(k key) (s state) {
	c := coder{k: k, read: true}
	s.fields(&c)
	return s
}

// weight orders users: by what they have done, then by where they stand in the queue.
func (s *state) weight(u int) uint64 {
	var c coder
	s.userFields(&c, u)
	w := c.k[0] << 8
	for i := s.length - 1; i >= 0; i-- {
		if int(s.log[i]) == u {
			w = w&^0xff | uint64(i+1)
		}
	}
	return w
}

// sort renames the users.
func (s *state) sort() {
	var w [users]uint64
	for u := range w {
		w[u] = s.weight(u)
	}
	for i := 1; i < users; i++ {
		for j := i; j > 0 && w[j] < w[j-1]; j-- {
			w[j], w[j-1] = w[j-1], w[j]
			s.swap(j, j-1)
		}
	}
}

func (s *state) swap(a, b int) {
	s.tokens[a], s.tokens[b] = s.tokens[b], s.tokens[a]
	s.status[a], s.status[b] = s.status[b], s.status[a]
	s.decisions[a], s.decisions[b] = s.decisions[b], s.decisions[a]
	s.orders[a], s.orders[b] = s.orders[b], s.orders[a]
	s.backs[a], s.backs[b] = s.backs[b], s.backs[a]
	s.versions[a], s.versions[b] = s.versions[b], s.versions[a]
	s.heard[a], s.heard[b] = s.heard[b], s.heard[a]
	s.requests[a], s.requests[b] = s.requests[b], s.requests[a]
	s.late[a], s.late[b] = s.late[b], s.late[a]
	s.acked[a], s.acked[b] = s.acked[b], s.acked[a]
	name := func(u *int8) {
		switch int(*u) {
		case a:
			*u = int8(b)
		case b:
			*u = int8(a)
		}
	}
	for i := range s.length {
		name(&s.log[i])
	}
	for c := range s.consumers {
		if s.consumers[c].step != waiting {
			name(&s.consumers[c].token)
		}
	}
	if s.job != noJob {
		name(&s.jobOf)
	}
}
