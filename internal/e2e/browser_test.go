package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"seckill/internal/apiclient"
	"seckill/internal/testenv"
	"seckill/internal/testenv/browser"
)

// shop is an installation with pages: gateway1 names the pusher, gateway2 a push address that nobody serves.
type shop struct {
	*stack
	browser       context.Context
	page, blocked string // addresses of the pages of gateway1 and gateway2
}

func startShop(t *testing.T) *shop {
	t.Helper()
	testenv.Chromium(t) // before the servers are started
	s := newStack(t, options{})
	g1, g2, p := freeAddr(t), freeAddr(t), freeAddr(t)
	procs := []*proc{
		s.launch("consumer", "consumer1", freeAddr(t)), s.launch("reconciler", "reconciler1", freeAddr(t)),
		s.launch("pusher", "pusher1", p, "SECKILL_PUSHER_ORIGINS=http://"+g1),
		s.launch("gateway", "gateway1", g1, "SECKILL_GATEWAY_PUSH_URL=ws://"+p),
		s.launch("gateway", "gateway2", g2, "SECKILL_GATEWAY_PUSH_URL=ws://"+freeAddr(t)),
	}
	for _, p := range procs {
		s.ready(p)
	}
	return &shop{stack: s, browser: browser.Start(t), page: "http://" + g1, blocked: "http://" + g2}
}

// sells opens a sale and returns the path of its page.
func (s *shop) sells(stock int64) (id, path string) {
	s.t.Helper()
	id = s.openSale(stock)
	return id, "/#" + id
}

// someone is a user number that no other test has.
func someone() string { return strconv.FormatInt(1_000_000+rand.Int64N(1<<62), 10) }

// The page on real servers, in a real browser. No test may leave a fault in the console (FS-091: nor a violation of the
// content policy).
func TestBrowser(t *testing.T) {
	s := startShop(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *shop)
	}{
		{"S33 two users at once want the last unit", testPageLastUnit},
		{"S28 S37 a payment shows in a second browser too", testPagePay},
		{"S23 cancel asks first", testPageCancel},
		{"S24 S33 a unit that comes back shows to who waited, without a click", testPageWaitlist},
		{"S33 sockets blocked, polling tells", testPagePolling},
		{"S28 sockets blocked, an event stream tells", testPageStream},
		{"FS-088 five clicks send one request", testPageClicks},
		{"FS-088 the same on a phone", testPageTaps},
		{"FS-088 after a network error the same request again", testPageRetry},
		{"FS-086 the button opens by the clock", testPageOpens},
		{"S33 a reload keeps the purchase, undecided and decided", testPageReload},
		{"FS-089 back from another page", testPageHistory},
		{"FS-090 a socket that dies without a word", testPageDeadSocket},
		{"FS-085 device clocks ten minutes off", testPageClock},
		{"FS-091 a title that is markup", testPageMarkup},
		{"Chinese, by choice and by the browser's language", testPageChinese},
		{"S33 a narrow phone", testPagePhone},
		{"S33 by keyboard alone", testPageKeyboard},
		{"S34 the console runs a sale", testConsole},
		{"a fault of the page is noticed by these tests", testFaultsAreNoticed},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := *s.stack
			own.t = t
			c.run(t, &shop{stack: &own, browser: s.browser, page: s.page, blocked: s.blocked})
		})
	}
}

func testPageLastUnit(t *testing.T, s *shop) {
	id, path := s.sells(1)
	tabs := [2]*tab{open(t, s.browser, s.page, path), open(t, s.browser, s.page, path)}
	for _, b := range tabs {
		b.allow("409")
		b.signIn(someone())
		b.link("socket")
		if got := b.text(".left"); !strings.HasPrefix(got, "1 of 1 left") {
			t.Errorf("stock shown: %q", got)
		}
	}
	var wg sync.WaitGroup
	for _, b := range tabs {
		wg.Go(func() {
			if err := chromedp.Do(b.ctx, chromedp.Click(chromedp.CSS(buyNow))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	decided := func(b *tab) string {
		b.shows("a decision", `["pending_payment"].includes(document.querySelector("#panel").dataset.status) || document.querySelector("#panel").dataset.tone === "bad"`)
		return b.js(`document.querySelector("#panel").dataset.status`)
	}
	first, second := decided(tabs[0]), decided(tabs[1])
	won, lost := tabs[0], tabs[1]
	if second == "pending_payment" {
		won, lost = lost, won
	}
	if (first == "pending_payment") == (second == "pending_payment") {
		t.Fatalf("the purchases are %q and %q, want one of them to be an order", first, second)
	}
	no := won.orderShown()
	var want string
	if err := s.db.QueryRow(fmt.Sprintf("SELECT order_no FROM %s WHERE activity_id = ?", s.tableWithOrder(id)), id).Scan(&want); err != nil {
		t.Fatal(err)
	}
	if no != want || !regexp.MustCompile(`^[0-9]{20,}$`).MatchString(no) {
		t.Errorf("FS-087: order number shown as %q, in the database %q; want the same 20 digits or more", no, want)
	}
	if !won.told(`"type":"result"`, `"pending_payment"`, no) || won.asked("GET /v1/results/")+won.asked("GET /v1/activities/"+id+"/me") > 0 {
		t.Error("S28: the order was not told by the socket")
	}
	if text := lost.text("#status"); !strings.HasPrefix(text, "Sold out") {
		t.Errorf("the other sees %q", text)
	}
	for _, b := range tabs { // live stock, pushed
		b.shows("no stock", `document.querySelector(".left").textContent.startsWith("0 of 1 left")`)
	}
	lost.shows("the button off", `document.querySelector('[data-buy="C1"]').disabled && document.querySelector('[data-buy="C1"]').textContent === "Sold out"`)
	s.balanced(id, 1, 1)
}

// tableWithOrder is the order table that has a row of the sale.
func (s *shop) tableWithOrder(id string) string {
	s.t.Helper()
	for i := range 16 {
		table := fmt.Sprintf("seckill_order_%02d", i)
		var n int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM "+table+" WHERE activity_id = ?", id).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		if n > 0 {
			return table
		}
	}
	s.t.Fatal("no order row")
	return ""
}

func testPagePay(t *testing.T, s *shop) {
	_, path := s.sells(5)
	user := someone()
	here, there := open(t, s.browser, s.page, path), open(t, s.browser, s.page, path)
	for _, b := range []*tab{here, there} {
		b.signIn(user)
		b.link("socket")
	}
	here.click(buyNow)
	for _, b := range []*tab{here, there} {
		b.status("pending_payment")
		b.shows("time to pay", `/^1[45]:\d\d$/.test(document.querySelector("#panel .timer").textContent)`)
	}
	no := here.orderShown()
	here.click("#panel .pay")
	for _, b := range []*tab{here, there} {
		b.status("paid")
		b.shows("the order as paid in the list", fmt.Sprintf(`document.querySelector('[data-order="%s"]')?.dataset.status === "paid"`, no))
		if !b.told(`"paid"`, no) {
			t.Error("S28: the payment was not told by the socket")
		}
		if b.js(`document.querySelector(".pay")`) != "null" {
			t.Error("a paid order can be paid again")
		}
	}
}

func testPageCancel(t *testing.T, s *shop) {
	id, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	b.signIn(someone())
	b.link("socket")
	b.click(buyNow)
	b.status("pending_payment")
	b.click("#panel .cancel")
	if got := b.text("#panel .cancel"); got != "Really cancel?" {
		t.Errorf("after one click the button says %q", got)
	}
	if b.asked("POST /v1/orders/") > 0 {
		t.Error("one click cancels")
	}
	b.click("#panel .cancel")
	b.status("cancelled")
	eventually(t, 30*time.Second, "the unit is on sale again", func() (bool, string) {
		n := s.units(id)
		return n == 5, fmt.Sprint(n)
	})
	b.shows("the unit on sale again", `document.querySelector(".left").textContent.startsWith("5 of 5 left")`)
}

func testPagePolling(t *testing.T, s *shop) {
	_, path := s.sells(5)
	b := open(t, s.browser, s.blocked, path)
	b.allow("WebSocket connection to", "ERR_CONNECTION_REFUSED")
	b.signIn(someone())
	b.link("polling")
	b.click(buyNow)
	b.status("pending_payment")
	b.click("#panel .pay")
	b.status("paid")
	if b.asked("GET /v1/results/") == 0 || b.asked("POST /v1/activities/") == 0 || len(b.frames) > 0 {
		t.Error("the result did not come by polling")
	}
}

// testPageStream is a page on a network that lets no WebSocket through: what a socket would have told, a stream tells.
func testPageStream(t *testing.T, s *shop) {
	_, path := s.sells(5)
	b := open(t, s.browser, s.page, path, before(`window.WebSocket = class {
		constructor() { setTimeout(() => this.onclose?.({ code: 1006 }), 10); }
		send() {}
		close() {}
	}`))
	b.signIn(someone())
	b.link("socket")
	b.click(buyNow)
	b.status("pending_payment")
	b.click("#panel .pay")
	b.status("paid")
	if b.asked("GET http://"+s.procs["pusher1"].addr+"/v1/sse") == 0 || b.asked("GET /v1/results/") > 0 || len(b.frames) > 0 {
		t.Error("the result did not come by the stream")
	}
}

func testPageClicks(t *testing.T, s *shop) { s.clicks(chromedp.EmulateViewport(1280, 900)) }
func testPageTaps(t *testing.T, s *shop)   { s.clicks(phone(390)) }

// clicks clicks five times at the same spot, on a screen.
func (s *shop) clicks(screen chromedp.Action[chromedp.Void]) {
	t := s.t
	t.Helper()
	id, path := s.sells(5)
	b := open(t, s.browser, s.page, path, screen)
	b.signIn(someone())
	b.link("socket")
	b.usable(buyNow)
	s.freeze("consumer1") // undecided for as long as the clicks take
	thawed := false
	defer func() {
		if !thawed {
			s.thaw("consumer1")
		}
	}()
	b.js(`document.querySelector('[data-buy="C1"]').scrollIntoView({block: "center", behavior: "instant"})`)
	var at [2]float64
	for i, side := range []string{"x + r.width / 2", "y + r.height / 2"} {
		at[i] = b.number(`((r) => r.` + side + `)(document.querySelector('[data-buy="C1"]').getBoundingClientRect())`)
	}
	pace := time.NewTicker(60 * time.Millisecond)
	defer pace.Stop()
	for range 5 {
		b.do(chromedp.MouseClickXY(at[0], at[1]))
		<-pace.C
	}
	b.status("processing")
	if n := b.asked("POST /v1/activities/" + id + "/orders"); n != 1 {
		t.Errorf("%d order requests, want 1", n)
	}
	s.thaw("consumer1")
	thawed = true
	b.status("pending_payment")
	s.balanced(id, 5, 1)
}

func testPageRetry(t *testing.T, s *shop) {
	id, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	b.allow("ERR_BLOCKED_BY_CLIENT", "ERR_FAILED")
	b.signIn(someone())
	b.link("socket")
	b.block(s.page + "/v1/activities/*/orders")
	b.click(buyNow)
	b.shows("that there is no connection", `document.querySelector("#status").textContent.startsWith("No connection") && document.querySelector('[data-buy="C1"]').textContent === "Try again now"`)
	kept := `JSON.parse(Object.entries(sessionStorage).find(([k]) => k.startsWith("seckill.purchase."))[1]).requestToken`
	token := b.js(kept)
	b.block()
	b.click(buyNow)
	b.status("pending_payment")
	var ordered string
	if err := s.db.QueryRow(fmt.Sprintf("SELECT request_token FROM %s WHERE activity_id = ?", s.tableWithOrder(id)), id).Scan(&ordered); err != nil {
		t.Fatal(err)
	}
	if n := b.asked("POST /v1/activities/" + id + "/request-token"); ordered != token || n != 1 {
		t.Errorf("ordered with token %s, want %s of the first attempt; %d tokens asked for", ordered, token, n)
	}
}

func testPageOpens(t *testing.T, s *shop) {
	for _, lead := range []time.Duration{8 * time.Second, 20 * time.Second, time.Minute} {
		if pageOpens(t, s, lead) {
			return
		}
		t.Logf("the page was not there %v after the sale was made; once more with a later start", lead)
	}
	t.Fatal("the page is never there before the start")
}

// pageOpens looks at a sale that starts in a while, and reports false when the page came too late to see it closed.
func pageOpens(t *testing.T, s *shop, lead time.Duration) bool {
	a, err := s.api("gateway1").Admin(t.Context(), adminToken, "", "", apiclient.Sale{
		Title: "Soon", StartsAt: time.Now().Add(lead).UnixMilli(), EndsAt: time.Now().Add(time.Hour).UnixMilli(),
		Items: []apiclient.SaleItem{{CommodityID: "C1", Title: "Item", Price: "1.00", Total: 5, MaxPerUser: 1}},
	})
	if err == nil {
		_, err = s.api("gateway1").Admin(t.Context(), adminToken, a.ActivityID, "warm-up", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, s.browser, s.page, "/#"+a.ActivityID)
	b.signIn(someone())
	b.link("socket")
	b.shows("the clock", `document.querySelector("#clock-label").textContent !== ""`)
	label, button := b.text("#clock-label"), b.text(buyNow)
	if time.Until(time.UnixMilli(a.StartsAt)) < time.Second {
		return false
	}
	if label != "Starts in" || button != "Not started" {
		t.Fatalf("before the start the clock says %q and the button %q", label, button)
	}
	late := b.number(fmt.Sprintf(`(async () => {
		const button = document.querySelector('[data-buy="C1"]');
		while (button.disabled) await new Promise((r) => setTimeout(r, 20));
		return Date.now() - %d;
	})()`, a.StartsAt))
	if late < -100 || late > 1000 {
		t.Errorf("the button opened %v ms after the start", late)
	}
	asked := b.asked("POST /v1/activities/" + a.ActivityID + "/request-token")
	b.click(buyNow)
	b.status("pending_payment")
	if n := b.asked("POST /v1/activities/" + a.ActivityID + "/request-token"); asked != 1 || n != 1 {
		t.Errorf("%d request tokens were asked for before the start and %d in all, want one ahead of it", asked, n)
	}
	return true
}

func testPageReload(t *testing.T, s *shop) {
	id, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	b.signIn(someone())
	b.link("socket")
	s.freeze("consumer1")
	thawed := false
	defer func() {
		if !thawed {
			s.thaw("consumer1")
		}
	}()
	b.click(buyNow)
	b.status("processing")
	b.do(chromedp.Reload())
	b.status("processing") // FS-093: never called failed
	if got := b.text(buyNow); got != "In the queue" {
		t.Errorf("after the reload the button says %q", got)
	}
	s.thaw("consumer1")
	thawed = true
	b.status("pending_payment")
	no := b.orderShown()
	b.do(chromedp.Reload())
	if again := b.orderShown(); again != no {
		t.Errorf("after the reload the order is %q, was %q", again, no)
	}
	if n := b.asked("POST /v1/activities/" + id + "/orders"); n != 1 {
		t.Errorf("%d order requests, want 1", n)
	}
	s.balanced(id, 5, 1)
}

func testPageHistory(t *testing.T, s *shop) {
	id, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	b.signIn(someone())
	b.link("socket")
	b.click(buyNow)
	no := b.orderShown()
	b.allow("Page entered Back-Forward Cache", "favicon.ico") // the browser closes the socket of a page that it freezes
	b.do(chromedp.Navigate(s.page + "/healthz"))
	b.back()
	b.shows("itself again", `location.pathname === "/"`)
	if again := b.orderShown(); again != no {
		t.Errorf("back on the page the order is %q, was %q", again, no)
	}
	b.link("socket")
	b.shows("the button as it was", `document.querySelector('[data-buy="C1"]').textContent === "You have one"`)
	if n := b.asked("POST /v1/activities/" + id + "/orders"); n != 1 {
		t.Errorf("%d order requests, want 1", n)
	}
}

func testPageDeadSocket(t *testing.T, s *shop) {
	_, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	b.allow("WebSocket connection to", "WebSocket is closed before")
	b.signIn(someone())
	b.link("socket")
	s.freeze("pusher1") // open as far as the browser can see, and silent
	thawed := false
	defer func() {
		if !thawed {
			s.thaw("pusher1")
		}
	}()
	b.click(buyNow)
	b.status("pending_payment")
	if b.told(`"pending_payment"`) {
		t.Error("the frozen pusher told it")
	}
	b.link("polling")
	s.thaw("pusher1")
	thawed = true
	b.js(`document.dispatchEvent(new Event("visibilitychange"))`)
	b.link("socket")
}

func testPageClock(t *testing.T, s *shop) {
	_, path := s.sells(5)
	for _, minutes := range []int{10, -10} {
		shift := fmt.Sprintf(`{ const real = Date, by = %d * 60000;
			Date = class extends real { constructor(...a) { a.length ? super(...a) : super(real.now() + by); } static now() { return real.now() + by; } }; }`, minutes)
		b := open(t, s.browser, s.page, path, before(shift))
		b.shows("the countdown", `document.querySelector("#clock b") !== null`)
		off := b.number(`(async () => {
			const a = (await (await fetch("/v1/activities/" + location.hash.slice(1))).json());
			const n = (u) => Number(document.querySelector('[data-unit="' + u + '"] b').textContent);
			return Math.abs((a.endsAt - a.serverTime) / 1000 - (n("hours") * 3600 + n("minutes") * 60 + n("seconds")));
		})()`)
		if off > 1.5 { // a started second counts whole
			t.Errorf("device clock %+d min: the countdown is off by %.1f s", minutes, off)
		}
		b.signIn(someone())
		b.link("socket")
		b.click(buyNow)
		b.status("pending_payment")
		b.shows("time to pay", `/^1[45]:\d\d$/.test(document.querySelector("#panel .timer").textContent)`)
	}
}

func testPageMarkup(t *testing.T, s *shop) {
	markup := `</script><img src=x onerror=alert(1)>`
	a, err := s.api("gateway1").Admin(t.Context(), adminToken, "", "", apiclient.Sale{
		Title: markup, StartsAt: time.Now().Add(-time.Second).UnixMilli(), EndsAt: time.Now().Add(time.Hour).UnixMilli(),
		Items: []apiclient.SaleItem{{CommodityID: "C1", Title: markup, Price: "1.00", Total: 5, MaxPerUser: 1}},
	})
	if err == nil {
		_, err = s.api("gateway1").Admin(t.Context(), adminToken, a.ActivityID, "warm-up", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.everyGatewayKnows(a.ActivityID)
	b := open(t, s.browser, s.page, "/#"+a.ActivityID)
	b.signIn(someone())
	b.click(buyNow)
	b.status("pending_payment")
	b.shows("the order in the list", `document.querySelector("#orders li") !== null`)
	for _, selector := range []string{"#sale-title", "#items h3", "#panel dd", "#orders b"} {
		if got := b.text(selector); got != markup {
			t.Errorf("%s shows %q", selector, got)
		}
	}
	if b.js(`document.querySelector("img")`) != "null" {
		t.Error("the title became an element")
	}
}

func testPageChinese(t *testing.T, s *shop) {
	_, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	b.signIn(someone())
	b.link("socket")
	b.shows("English", `document.querySelector('[data-buy="C1"]').textContent === "Buy now"`)
	b.click(`[data-language="zh"]`)
	b.shows("Chinese", `document.querySelector('[data-buy="C1"]').textContent === "立即抢购" && document.documentElement.lang === "zh-CN"`)
	b.click(buyNow)
	b.status("pending_payment")
	b.shows("the result in Chinese", `document.querySelector("#status").textContent.startsWith("抢到了")`)
	b.do(chromedp.Reload())
	b.shows("Chinese after a reload", `document.querySelector("#link").textContent.includes("实时")`)
	b.click(`[data-language="en"]`)
	b.shows("English again", `document.querySelector('[data-buy="C1"]').textContent === "You have one"`)

	chinese := open(t, s.browser, s.page, path, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: "test", AcceptLanguage: "zh-CN,zh"})
		return err
	}))
	chinese.shows("Chinese", `document.querySelector('[data-buy="C1"]')?.textContent === "登录后抢购"`)
}

func testPagePhone(t *testing.T, s *shop) {
	_, path := s.sells(5)
	for _, width := range []int64{390, 320} {
		b := open(t, s.browser, s.page, path, phone(width))
		fits := func() {
			t.Helper()
			// Not innerWidth: a phone widens it when something reaches beyond.
			if got := b.js(fmt.Sprintf(`[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > %d + 1 && !e.closest(".unseen, .sales")).map((e) => e.outerHTML.slice(0, 80))`, width)); got != "" {
				t.Errorf("at %d px these reach beyond the screen: %s", width, got)
			}
		}
		fits()
		b.signIn(someone())
		b.link("socket")
		b.click(buyNow)
		b.status("pending_payment")
		b.shows("the order in the list", `document.querySelector("#orders li") !== null`)
		fits()
		if got := b.js(`[...document.querySelectorAll("main button")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 32).length`); got != "0" {
			t.Errorf("%s buttons are too low for a finger", got)
		}
	}
}

func testPageKeyboard(t *testing.T, s *shop) {
	_, path := s.sells(5)
	b := open(t, s.browser, s.page, path)
	press := func(selector string) {
		t.Helper()
		b.usable(selector)
		for range 40 {
			b.do(chromedp.KeyEvent("\t"))
			if b.js(fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) == "true" {
				if b.js(`getComputedStyle(document.activeElement).outlineStyle`) == "none" {
					t.Errorf("%s does not show that it has the focus", selector)
				}
				b.do(chromedp.KeyEvent("\r"))
				return
			}
		}
		t.Fatalf("%s is not reached by the keyboard", selector)
	}
	b.signIn(someone())
	b.link("socket")
	press(buyNow)
	b.status("pending_payment")
	press("#panel .pay")
	b.status("paid")
}

func testConsole(t *testing.T, s *shop) {
	b := open(t, s.browser, s.page, "/console/")
	b.allow("401")
	b.shows("the question for the token", `document.querySelector("#enter").checkVisibility()`)
	b.write("#token", "wrong\r")
	b.shows("that the token is wrong", `document.querySelector("#notice").textContent === "This admin token is not valid."`)
	b.write("#token", adminToken+"\r")
	b.shows("the sales", `document.querySelector("#desk").checkVisibility()`)
	id := fmt.Sprintf("CON%d", counter.Add(1))
	for selector, value := range map[string]string{
		"#create [name=title]": "From the console", "#create [name=activityId]": id,
		"#create [name=itemTitle]": "Lamp", "#create [name=price]": "45.50",
	} {
		b.write(selector, value)
	}
	b.click("#create > .button")
	card := fmt.Sprintf(`[data-sale="%s"]`, id)
	state := func(want string) {
		t.Helper()
		b.shows("the sale as "+want, fmt.Sprintf(`document.querySelector('%s')?.dataset.state === %q`, card, want))
	}
	press := func(verb string) { b.click(card + fmt.Sprintf(` [data-verb="%s"]`, verb)) }
	state("draft")
	press("warm-up")
	state("scheduled")
	press("open")
	state("open")
	if got := b.text(card + " tr"); got != "Lamp¥45.50100 / 100" {
		t.Errorf("the item is shown as %q", got)
	}
	press("pause")
	state("paused")
	press("resume")
	state("open")
	press("end")
	state("open") // one click asks only
	press("end")
	state("ended")
	a, err := s.api("gateway1").Activity(t.Context(), id)
	if err != nil || a.State != "ended" || a.Items[0].Price != "45.50" {
		t.Errorf("%+v %v", a, err)
	}
}

// The check of faults itself: without it the others could not fail.
func testFaultsAreNoticed(t *testing.T, s *shop) {
	b := open(t, s.browser, s.page, "/")
	b.js(`(() => { const e = document.createElement("script"); e.textContent = "window.ran = 1"; document.head.append(e); return window.ran; })()`)
	b.js(`(() => { console.error("said"); setTimeout(() => { throw new Error("thrown"); }); return 1; })()`)
	eventually(t, patience, "all three faults are noticed", func() (bool, string) {
		all := strings.Join(b.unexpected(), "\n")
		return strings.Contains(all, "security error") && strings.Contains(all, "said") && strings.Contains(all, "thrown"), all
	})
	b.mu.Lock()
	b.faults = nil
	b.mu.Unlock()
}
