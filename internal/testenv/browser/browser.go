// Package browser starts the browser of the tests. It is a package of its own so that only tests that need one link its
// driver.
package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/testenv"
)

// Start starts a headless browser, the one that testenv.Chromium names, and returns the context that tabs are opened from.
// It ends with the test, which is skipped, or fails, as testenv.Chromium says when there is none.
func Start(t testing.TB) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(testenv.Chromium(t)), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("lang", "en-US"),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	browser, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(browser, 20*time.Second)
		defer cancel()
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("close browser: %v", err)
		}
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start %s: %v", testenv.Chromium(t), err)
	}
	return browser
}
