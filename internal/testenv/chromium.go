package testenv

import (
	"fmt"
	"os"
	"os/exec"
)

// FindChromium returns the program that SECKILL_TEST_CHROMIUM names, else an installed Chromium or Chrome. The error
// wraps ErrNotInstalled.
func FindChromium() (string, error) {
	if path := os.Getenv(EnvChromium); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("chromium: %w", ErrNotInstalled)
}
