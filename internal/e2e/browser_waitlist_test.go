package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// One buys the only unit, three wait for it, one of them without a socket. The place is live, outlives a reload and can
// be given up; the unit of the cancelled order shows to the first in line, who has posted nothing.
func testPageWaitlist(t *testing.T, s *shop) {
	id, path := s.sells(1)
	buyer := open(t, s.browser, s.page, path)
	buyer.signIn(someone())
	buyer.link("socket")
	buyer.click(buyNow)
	buyer.status("pending_payment")

	const wait = `[data-wait="C1"]`
	place := func(b *tab, n int) {
		t.Helper()
		b.shows(fmt.Sprintf("place %d", n), fmt.Sprintf(`document.querySelector("#status").textContent.startsWith("You are number %d in the waitlist for Item.")`, n))
	}
	var line [3]*tab
	for i, base := range []string{s.page, s.page, s.blocked} {
		b := open(t, s.browser, base, path)
		line[i] = b
		b.allow("WebSocket connection to", "ERR_CONNECTION_REFUSED")
		b.signIn(someone())
		b.link(map[bool]string{true: "socket", false: "polling"}[base == s.page])
		b.shows("no unit left", `document.querySelector(".left").textContent.startsWith("0 of 1 left")`)
		if got := b.text(wait); got != "Join the waitlist" {
			t.Errorf("the button says %q", got)
		}
		b.click(wait)
		place(b, i+1)
	}
	first, second, third := line[0], line[1], line[2]
	first.do(chromedp.Reload())
	place(first, 1)
	first.click(`[data-language="zh"]`)
	first.shows("Chinese", `document.querySelector('[data-wait="C1"]').textContent === "退出候补" && document.querySelector("#status").textContent.includes("第 1 位")`)
	first.click(`[data-language="en"]`)
	second.click(wait) // leaves
	second.shows("that it has left", `document.querySelector('[data-wait="C1"]').textContent === "Join the waitlist" && !document.querySelector("#status").textContent.includes("waitlist")`)
	second.click(wait)
	place(second, 3)

	buyer.click("#panel .cancel")
	buyer.click("#panel .cancel")
	buyer.status("cancelled")
	first.status("pending_payment")
	no := first.orderShown()
	first.shows("where it came from", `document.querySelector("#panel .promoted").textContent === "It came to you from the waitlist." && document.querySelector("#status").textContent.startsWith("It is yours!")`)
	if first.asked("POST /v1/activities/"+id+"/orders") > 0 || !first.told(`"type":"result"`, `"pending_payment"`, no) {
		t.Error("the order did not come by the socket alone")
	}
	place(second, 2)
	place(third, 1) // polled
	if !first.told(`"type":"waitlist"`, `"position":1`) || !second.told(`"type":"waitlist"`, `"position":2`) {
		t.Error("the place was not told by the socket")
	}
	first.do(chromedp.Reload())
	first.shows("where it came from", `document.querySelector("#panel .promoted") !== null`)
	if again := first.orderShown(); again != no {
		t.Errorf("after the reload the order is %q, was %q", again, no)
	}
	first.click("#panel .pay")
	first.status("paid")
	if units, sold, rows := s.units(id), s.sold(id), s.orders(id); units != 0 || sold != 1 || rows != 2 {
		t.Errorf("%d units left, %d sold, %d orders; want 0, 1 and 2: the cancelled one and the new one", units, sold, rows)
	}
}
