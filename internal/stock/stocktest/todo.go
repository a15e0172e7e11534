package stocktest

import "testing"

func testLimits(t *testing.T, b Backend)      {}
func testSettle(t *testing.T, b Backend)      {}
func testRebuild(t *testing.T, b Backend)     {}
func testReading(t *testing.T, b Backend)     {}
func testConcurrency(t *testing.T, b Backend) {}
func testLifetime(t *testing.T, b Backend)    {}
