package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show what it must; the machine may be busy with other tests.
const patience = 20 * time.Second

// tab is one page in a browser context of its own, as another person's browser is.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	requests []string // "METHOD path" of what went out
	frames   []string // that came in over sockets
	faults   []string // exceptions, errors and warnings of the console, violations of the content policy
	allowed  []string // parts of network faults that the test provokes
}

// open opens the page of a gateway in a tab. At the test's end the tab must have had no fault.
func open(t *testing.T, browser context.Context, base, path string, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	b := &tab{t: t, base: base}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.record))
	b.ctx = ctx
	t.Cleanup(func() {
		b.check()
		cancel()
	})
	b.do(append(append([]chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(1280, 900)}, before...), chromedp.Navigate(base+path))...)
	return b
}

// record notes what the tab does.
func (b *tab) record(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.Method+" "+strings.TrimPrefix(e.Request.URL, b.base))
	case *network.EventWebSocketFrameReceived:
		b.frames = append(b.frames, string(e.Response.PayloadData))
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, "exception: "+e.ExceptionDetails.Text+" "+description(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			text := ""
			for _, arg := range e.Args {
				text += " " + description(arg)
			}
			b.faults = append(b.faults, fmt.Sprintf("console.%s:%s", e.Type, text))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			b.faults = append(b.faults, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}
}

// description is a value as text.
func description(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return string(o.Value) + o.Description
}

// allow says which network faults the test provokes, by a part of their text.
func (b *tab) allow(parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, parts...)
}

// unexpected lists the faults that are not allowed. Only what the network does can be.
func (b *tab) unexpected() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, f := range b.faults {
		for _, part := range b.allowed {
			if strings.HasPrefix(f, "network ") && strings.Contains(f, part) {
				continue next
			}
		}
		out = append(out, f)
	}
	return out
}

func (b *tab) check() {
	for _, f := range b.unexpected() {
		b.t.Errorf("the page had a fault: %s", f)
	}
	if b.t.Failed() {
		b.mu.Lock()
		b.t.Logf("requests: %s\nframes: %s", strings.Join(b.requests, "; "), strings.Join(b.frames, "\n"))
		b.mu.Unlock()
	}
}

// asked counts the requests whose method and path start so.
func (b *tab) asked(prefix string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// told reports whether one frame of a socket holds all the parts.
func (b *tab) told(parts ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, f := range b.frames {
		for _, part := range parts {
			if !strings.Contains(f, part) {
				continue next
			}
		}
		return true
	}
	return false
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx := b.ctx
	if chromedp.FromContext(ctx).Target != nil { // the first call must not end the tab
		c, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		ctx = c
	}
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// block makes requests to these addresses fail, and lets all others through.
func (b *tab) block(urls ...string) {
	b.t.Helper()
	patterns := []*network.BlockPattern{}
	for _, u := range urls {
		patterns = append(patterns, &network.BlockPattern{URLPattern: u, Block: true})
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: patterns})
		return err
	}))
}

// back goes back in the history, without waiting for a load: a page from the browser's cache does not load.
func (b *tab) back() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		h, err := cdp.Call(ctx, t, page.GetNavigationHistory, cdp.Empty{})
		if err != nil {
			return err
		}
		entry := h.Entries[h.CurrentIndex-1].ID
		_, err = cdp.Call(ctx, t, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: entry})
		return err
	}))
}

// number evaluates an expression to a number.
func (b *tab) number(expression string) float64 {
	b.t.Helper()
	n, err := strconv.ParseFloat(b.js(expression), 64)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return n
}

// js evaluates an expression, or the promise that it gives, to text.
func (b *tab) js(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => String(await ("+expression+")))()", chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text is the text of the first element of a selector, "" when there is none.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return b.js(fmt.Sprintf(`document.querySelector(%q)?.textContent ?? ""`, selector))
}

// shows waits until the expression is true.
func (b *tab) shows(what, expression string) {
	b.t.Helper()
	eventually(b.t, patience, "the page shows "+what, func() (bool, string) {
		if b.js(expression) == "true" {
			return true, ""
		}
		return false, b.text("#status") + " | " + b.text("#notice") + " | " + b.js("document.title + location.href")
	})
}

// status waits for the state of the purchase.
func (b *tab) status(want string) {
	b.t.Helper()
	b.shows("the purchase as "+want, fmt.Sprintf(`document.querySelector("#panel").dataset.status === %q`, want))
}

// signIn signs in as a demo user by the form.
func (b *tab) signIn(user string) {
	b.t.Helper()
	b.shows("the sign-in form", `document.querySelector("#signin").checkVisibility()`)
	b.write("#user", user+"\r")
	b.shows("the user", fmt.Sprintf(`document.querySelector("#signed .who").textContent.includes(%q)`, user))
}

// write types a text in place of what a field holds.
func (b *tab) write(field, text string) {
	b.t.Helper()
	b.js(fmt.Sprintf(`document.querySelector(%q).value = ""`, field))
	b.do(chromedp.SendKeys(chromedp.CSS(field), text))
}

// link waits for the state of the link.
func (b *tab) link(want string) {
	b.t.Helper()
	b.shows("the link as "+want, fmt.Sprintf(`document.querySelector("#link").dataset.link === %q`, want))
}

// usable waits until an element can be used.
func (b *tab) usable(selector string) {
	b.t.Helper()
	b.shows(selector+" to be used", fmt.Sprintf(`((e) => Boolean(e) && e.checkVisibility() && !e.disabled && !e.closest("[inert]"))(document.querySelector(%q))`, selector))
}

// click clicks with the mouse.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.usable(selector)
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// phone is the screen of a phone.
func phone(width int64) chromedp.Action[chromedp.Void] {
	return chromedp.EmulateViewport(width, 740, chromedp.EmulateMobile, chromedp.EmulateTouch)
}

// buyNow is the buy button of the sale's item.
const buyNow = `[data-buy="C1"]`

// orderShown is the order number in the panel, once there is one.
func (b *tab) orderShown() string {
	b.t.Helper()
	b.shows("an order number", `document.querySelector("#order-no") !== null`)
	return b.text("#order-no")
}

// before runs a script in every document of the tab before its own.
func before(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}
