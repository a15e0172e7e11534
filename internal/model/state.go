package model

import "seckill/internal/sale"

// Sizes of the world.
const (
	users   = 3
	units   = 2
	logSize = 6 // messages from the committed offset on; more are not published
)

// tokenState is the state of a user's token in Redis; each user has one token.
type tokenState uint8

const (
	unknown tokenState = iota
	occupied
	committed
	released
)

// name is the state as package sale has it.
func (s tokenState) name() sale.TokenState {
	return [...]sale.TokenState{"", sale.TokenOccupied, sale.TokenCommitted, sale.TokenReleased}[s]
}

// decision is what the token log says: a set, so that a model with a mistake can hold two.
type decision uint8

const (
	ordered decision = 1 << iota
	refused
)

// request is how far a user's request has come at the gateway.
type request uint8

const (
	idle     request = iota
	reserved         // between pre-deduct and publish
	accepted         // 202 was answered
	pending          // 503 pending, or the connection broke: the user may ask again
	turned           // sold out at the gateway: no token
)

// life is the life of an order.
type life uint8

const (
	noOrder life = iota
	unpaid
	ended // cancelled or closed
)

// back is stock_returned of an ended order.
type back uint8

const (
	backNull back = iota
	backDue
	backDone
)

// step is how far a consumer is with its message.
type step uint8

const (
	waiting step = iota
	fetched
	lookedUp // and not known
	decided
	settled
	told
)

// consumer is one member of the group, one message at a time.
type consumer struct {
	step  step
	at    int8 // offset of its message, from the committed one on
	token int8
}

// job is what the reconciler is in the middle of.
type job uint8

const (
	noJob   job = iota
	relays      // has read an occupied token, not yet published
	returns     // has put a unit back in Redis, not yet marked it
)

// state is one state of the world. It is comparable: two equal ones are searched once.
type state struct {
	// Redis.
	stock  int8
	tokens [users]tokenState
	status [users]uint8 // version in the hash
	// Database.
	decisions [users]decision
	orders    [users]life
	backs     [users]back
	versions  [users]uint8 // of the order row
	sold      int8
	// Kafka: messages from the committed offset on, by token; messages on their way.
	log    [logSize]int8
	length int8
	late   [users]bool
	owner  int8 // which consumer may commit
	// Processes.
	requests  [users]request
	acked     [users]bool  // 202 was answered
	heard     [users]uint8 // version the user was told
	consumers [2]consumer
	job       job
	jobOf     int8
	left      Limits  // of each kind of trouble
	crashes   [3]bool // have happened
}

// Crashes, by place in state.crashes.
const (
	gatewayCrash = iota
	consumerCrash
	reconcilerCrash
)

func start(l Limits) state { return state{stock: units, left: l} }

// count is how many tokens are in a state.
func (s *state) count(t tokenState) (n int8) {
	for _, have := range s.tokens {
		if have == t {
			n++
		}
	}
	return n
}

// queued reports whether a message of the token is still to be finished, or on its way.
func (s *state) queued(u int8) bool {
	for i := range s.length {
		if s.log[i] == u {
			return true
		}
	}
	return s.late[u]
}

// publish appends a message; false when the log of the model is full.
func (s *state) publish(u int8) bool {
	if s.length == logSize {
		return false
	}
	s.log[s.length] = u
	s.length++
	return true
}

// commit moves the committed offset past n messages.
func (s *state) commit(n int8) {
	copy(s.log[:], s.log[n:])
	s.length -= n
	for i := s.length; i < logSize; i++ {
		s.log[i] = 0
	}
	for c := range s.consumers {
		if k := &s.consumers[c]; k.step != waiting {
			k.at -= n // below zero: it works on a message that others have finished
		}
	}
}
