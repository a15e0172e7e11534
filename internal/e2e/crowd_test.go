package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"seckill/internal/apiclient"
	"seckill/internal/auth"
	"seckill/internal/testenv"
)

// crowdEnv makes a copy of the test binary a worker: it holds the sockets of its users and buys for them.
const crowdEnv = "SECKILL_TEST_CROWD"

// crowdJob is what one worker does.
type crowdJob struct {
	Gateways, Pushers []string // addresses
	Activity          string
	First, Users      int64
	InFlight          int
	Faults            bool          // servers and roles die meanwhile: sockets may be lost, polling is the fallback
	CancelEvery       int64         // with an order, each so-manyth user cancels it; 0: none
	Within            time.Duration // for everything after the start
}

// crowdReport is what one worker saw.
type crowdReport struct {
	Accepted int            // answered 202 or 200
	SoldOut  int            // answered 409 sold_out
	Told     int            // of the accepted: final result came over the socket
	ByStatus map[string]int // of those results
	Outcomes []crowdOutcome // what the users of accepted requests were told first
	Unsure   []crowdOutcome // answered sold out after an answer that was lost: an earlier try may yet be decided (R14)
	Polled   int            // results that came by polling
	Retries  int            // 429 and 503 answers
	Unknown  []string       // what should not happen, at most 10
	P50, P99 time.Duration  // acceptance to result at the socket
	Took     time.Duration
}

// crowdOutcome is what one user was told.
type crowdOutcome struct {
	User      int64
	Token     string
	Status    string
	Cancelled bool // by the user, afterwards
}

// refused: the user was told that there is no order.
func (o *crowdOutcome) refused() bool { return o.Status == "failed" || o.Status == "sold_out" }

// crowdUser is one user of a worker.
type crowdUser struct {
	id         int64
	bearer     string
	token      string
	acceptedAt time.Time
	unsure     bool // sold out, but an answer was lost before
	result     chan crowdResult
	lost       chan struct{} // closed when the socket is gone
}

type crowdResult struct {
	apiclient.Result
	at time.Time
}

// crowdWorker runs a job when this process is a worker. It says "ready" once all sockets are synced, waits for a line,
// works, and writes its report.
func crowdWorker() bool {
	text := os.Getenv(crowdEnv)
	if text == "" {
		return false
	}
	var job crowdJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		fmt.Println("bad job:", err)
		return true
	}
	users, err := connectCrowd(job)
	if err != nil {
		fmt.Println("connect:", err)
		return true
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	report := runCrowd(job, users)
	_ = json.NewEncoder(os.Stdout).Encode(report)
	return true
}

// connectCrowd opens a socket for each user.
func connectCrowd(job crowdJob) ([]*crowdUser, error) {
	users := make([]*crowdUser, job.Users)
	errs := make(chan error, job.Users)
	slots := make(chan struct{}, 50)
	for i := range users {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			id := job.First + int64(i)
			bearer, err := auth.SignHS256([]byte(jwtSecret), id, "", "", time.Now().Add(time.Hour))
			if err == nil {
				users[i] = &crowdUser{id: id, bearer: bearer, result: make(chan crowdResult, 8)}
				err = users[i].connect(job.Pushers[int(id)%len(job.Pushers)], job.Activity)
			}
			errs <- err
		}()
	}
	for range users {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	return users, nil
}

// connect opens the socket, waits for synced, and listens.
func (u *crowdUser) connect(pusher, activity string) error {
	d := websocket.Dialer{Subprotocols: []string{"seckill.v1", "bearer." + u.bearer}, ReadBufferSize: 512, WriteBufferSize: 512, HandshakeTimeout: 20 * time.Second}
	conn, _, err := d.Dial("ws://"+pusher+"/v1/ws?activity="+activity, nil)
	if err != nil {
		return fmt.Errorf("user %d: %w", u.id, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		var f apiclient.Result
		if err := conn.ReadJSON(&f); err != nil {
			_ = conn.Close()
			return fmt.Errorf("user %d before synced: %w", u.id, err)
		}
		if f.Type == "synced" {
			break
		}
		u.heard(f, activity)
	}
	_ = conn.SetReadDeadline(time.Time{})
	lost := make(chan struct{})
	u.lost = lost
	go func() {
		defer close(lost)
		defer conn.Close()
		for {
			var f apiclient.Result
			if err := conn.ReadJSON(&f); err != nil {
				return
			}
			u.heard(f, activity)
		}
	}()
	return nil
}

// heard passes on a final result of this sale; the first is enough, so a full channel may drop.
func (u *crowdUser) heard(f apiclient.Result, activity string) {
	if f.Type == "result" && f.ActivityID == activity && f.Status != "processing" {
		select {
		case u.result <- crowdResult{f, time.Now()}:
		default:
		}
	}
}

// runCrowd buys for every user, again and again until a final answer, then waits for the results at the sockets.
func runCrowd(job crowdJob, users []*crowdUser) crowdReport {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), job.Within)
	defer cancel()
	var mu sync.Mutex
	rep := crowdReport{ByStatus: map[string]int{}}
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if len(rep.Unknown) < 10 {
			rep.Unknown = append(rep.Unknown, fmt.Sprintf(format, args...))
		}
	}
	clients := make([]*apiclient.Client, len(job.Gateways))
	for i, g := range job.Gateways {
		clients[i] = apiclient.New("http://"+g, job.InFlight)
	}
	var waits []time.Duration
	polls := make(chan struct{}, 50)
	follow := func(u *crowdUser) {
		c := clients[int(u.id)%len(clients)]
		r, polled, ok := u.outcome(ctx, c, job, polls)
		if !ok {
			note("user %d: accepted, never told", u.id)
			return
		}
		if r.RequestToken != u.token {
			note("user %d was told of token %s, has %s", u.id, r.RequestToken, u.token)
		}
		told := crowdOutcome{User: u.id, Token: u.token, Status: r.Status}
		if job.CancelEvery > 0 && u.id%job.CancelEvery == 0 && !told.refused() {
			if err := u.cancel(ctx, c, r.OrderNo); err != nil {
				note("user %d cancels %s: %v", u.id, r.OrderNo, err)
			}
			told.Cancelled = true
		}
		mu.Lock()
		defer mu.Unlock()
		rep.Told++
		rep.ByStatus[r.Status]++
		waits = append(waits, r.at.Sub(u.acceptedAt))
		if polled {
			rep.Polled++
		}
		if job.Faults {
			rep.Outcomes = append(rep.Outcomes, told)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, job.InFlight)
	for i, u := range users {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			verdict, retries, err := u.buyUntilAnswered(ctx, clients[i%len(clients)], job.Activity)
			mu.Lock()
			defer mu.Unlock()
			rep.Retries += retries
			switch verdict {
			case "accepted":
				rep.Accepted++
				wg.Go(func() { follow(u) })
			case "sold_out":
				rep.SoldOut++
			default:
				wg.Go(func() { note("user %d: %v", u.id, err) }) // it takes the lock
			}
			if u.unsure {
				rep.Unsure = append(rep.Unsure, crowdOutcome{User: u.id, Token: u.token})
			}
		})
	}
	wg.Wait()
	slices.Sort(waits)
	if n := len(waits); n > 0 {
		rep.P50, rep.P99 = waits[n/2], waits[n*99/100]
	}
	rep.Took = time.Since(start)
	return rep
}

// outcome waits for the user's result at the socket. With faults a socket that is gone is opened again, and while that
// fails the result is polled, every two seconds; with a socket nobody polls: it alone has to bring the result (S29).
func (u *crowdUser) outcome(ctx context.Context, c *apiclient.Client, job crowdJob, slots chan struct{}) (r crowdResult, polled, ok bool) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case r := <-u.result:
			return r, false, true
		case <-ctx.Done():
			return r, false, false
		case <-tick.C:
			if !job.Faults {
				continue
			}
			select {
			case <-u.lost:
			default:
				continue
			}
			slots <- struct{}{}
			var res apiclient.Result
			err := u.connect(job.Pushers[int(u.id)%len(job.Pushers)], job.Activity)
			if err != nil {
				res, err = c.Result(ctx, u.bearer, u.token, 0)
			}
			<-slots
			if err == nil && res.Status != "" && res.Status != "processing" {
				return crowdResult{res, time.Now()}, true, true
			}
		}
	}
}

// buyUntilAnswered repeats what is to be repeated until the answer is final.
func (u *crowdUser) buyUntilAnswered(ctx context.Context, c *apiclient.Client, activity string) (verdict string, retries int, err error) {
	tried := false // an answer was lost or pending
	for ctx.Err() == nil {
		if u.token == "" {
			if u.token, err = c.RequestToken(ctx, u.bearer, activity); err != nil {
				if !retryable(err) {
					return "", retries, err
				}
				retries++
				time.Sleep(200 * time.Millisecond)
				continue
			}
		}
		_, _, err = c.Buy(ctx, u.bearer, activity, "C1", u.token, 1)
		tried = tried || err != nil && !refused(err)
		var p *apiclient.Problem
		switch {
		case err == nil:
			u.acceptedAt = time.Now()
			return "accepted", retries, nil
		case errors.As(err, &p) && p.Code == "sold_out":
			if !tried {
				return "sold_out", retries, nil
			}
			// No decision about an earlier try of the same token: one that was cut off may hold a unit.
			res, rerr := c.Result(ctx, u.bearer, u.token, 0)
			if rerr == nil && res.Status != "sold_out" {
				u.acceptedAt = time.Now()
				return "accepted", retries, nil
			}
			if rerr == nil || unknownToken(rerr) {
				u.unsure = true
				return "sold_out", retries, nil
			}
		case !retryable(err):
			return "", retries, err
		}
		retries++
		time.Sleep(200 * time.Millisecond)
	}
	return "", retries, fmt.Errorf("time is over: %w", err)
}

// cancel cancels the order; a repeat after a lost answer is harmless.
func (u *crowdUser) cancel(ctx context.Context, c *apiclient.Client, orderNo string) error {
	for {
		_, err := c.ChangeOrder(ctx, u.bearer, orderNo, "cancel")
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// unknownToken: the gateway knows nothing of this token.
func unknownToken(err error) bool {
	var p *apiclient.Problem
	return errors.As(err, &p) && p.Status == http.StatusNotFound
}

// refused: the gateway said no for sure.
func refused(err error) bool {
	var p *apiclient.Problem
	return errors.As(err, &p) && p.Code != "pending"
}

func retryable(err error) bool {
	var p *apiclient.Problem
	return !errors.As(err, &p) || p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

// crowd runs workers side by side and returns their reports. started is called once all sockets are open.
func (s *stack) crowd(workers int, job crowdJob, started func()) []crowdReport {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	type worker struct {
		in  io.WriteCloser
		out *bufio.Reader
		cmd *exec.Cmd
	}
	all := job.Users
	var ws []worker
	for i := range int64(workers) {
		job.First, job.Users = 100_000+i*all/int64(workers), all/int64(workers)
		text, err := json.Marshal(job)
		if err != nil {
			s.t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), crowdEnv+"="+string(text), "GOGC=200")
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = testenv.ChildAttr()
		in, err := cmd.StdinPipe()
		if err != nil {
			s.t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			s.t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		ws = append(ws, worker{in, bufio.NewReader(out), cmd})
	}
	start := time.Now()
	for i, w := range ws {
		if line, err := w.out.ReadString('\n'); err != nil || line != "ready\n" {
			s.t.Fatalf("worker %d: %q %v", i, line, err)
		}
	}
	s.t.Logf("%d sockets connected and synced in %v", all, time.Since(start).Round(time.Millisecond))
	started()
	for _, w := range ws {
		_, _ = io.WriteString(w.in, "go\n")
	}
	reports := make([]crowdReport, len(ws))
	for i, w := range ws {
		if err := json.NewDecoder(w.out).Decode(&reports[i]); err != nil {
			s.t.Fatalf("report of worker %d: %v", i, err)
		}
	}
	return reports
}

// The promise of the product, on real servers: 20,000 users with a socket each, 1,000 units, two of every role.
func TestCrowd(t *testing.T) {
	const stock, users = 1000, 20_000
	s := newStack(t, options{env: []string{
		"SECKILL_LIMITS_SALE_PER_SECOND=200000", "SECKILL_LIMITS_SYSTEM_PER_SECOND=400000", "SECKILL_PUSHER_MAX_SOCKETS_PER_ADDRESS=30000",
	}})
	s.startAll()
	id := s.openSale(stock)
	reports := s.crowd(4, crowdJob{
		Gateways: []string{s.procs["gateway1"].addr, s.procs["gateway2"].addr},
		Pushers:  []string{s.procs["pusher1"].addr, s.procs["pusher2"].addr},
		Activity: id, Users: users, InFlight: 250, Within: 4 * time.Minute,
	}, func() {})
	var sum crowdReport
	for _, r := range reports {
		sum.Accepted += r.Accepted
		sum.SoldOut += r.SoldOut
		sum.Told += r.Told
		sum.Retries += r.Retries
		sum.P50, sum.P99, sum.Took = max(sum.P50, r.P50), max(sum.P99, r.P99), max(sum.Took, r.Took)
		for _, u := range r.Unknown {
			t.Error(u)
		}
		for status, n := range r.ByStatus {
			if status != "pending_payment" {
				t.Errorf("%d users were told %s", n, status)
			}
		}
	}
	t.Logf("accepted %d, told over the socket %d, sold out %d, retries %d; acceptance to result p50 %v p99 %v (worst worker), all in %v",
		sum.Accepted, sum.Told, sum.SoldOut, sum.Retries, sum.P50, sum.P99, sum.Took.Round(time.Millisecond))
	if sum.Accepted != stock || sum.Told != stock || sum.SoldOut != users-stock {
		t.Errorf("accepted %d, told %d, sold out %d; want %d, %d, %d", sum.Accepted, sum.Told, sum.SoldOut, stock, stock, users-stock)
	}
	if n := s.units(id); n != 0 {
		t.Errorf("Redis stock is %d, want 0", n)
	}
	if n := s.sold(id); n != stock {
		t.Errorf("sold_count is %d, want %d", n, stock)
	}
	s.balanced(id, stock, stock)
}
