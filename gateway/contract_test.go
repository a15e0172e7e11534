package gateway

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/contract"
)

// docs/openapi.yaml and the route table name the same operations.
func TestRoutesMatchContract(t *testing.T) {
	t.Parallel()
	c, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	param := regexp.MustCompile(`\{[^}]+\}`)
	var want []string
	for _, op := range c.Operations(false) {
		want = append(want, param.ReplaceAllString(op, "*"))
	}
	g := &Gateway{admin: func(string) bool { return false }}
	var got []string
	for _, def := range g.routes() {
		for method := range def.methods {
			if method != "HEAD" {
				got = append(got, method+" /"+strings.Join(def.pattern, "/"))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("routes\n%s\ncontract\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every code has a status, and the contract's enumeration knows it.
func TestCodesAreComplete(t *testing.T) {
	t.Parallel()
	for code, status := range httpStatus {
		if status < 400 || status > 599 {
			t.Errorf("%s has status %d", code, status)
		}
	}
	if len(httpStatus) != 25 {
		t.Errorf("%d codes, the contract has 25", len(httpStatus))
	}
}
