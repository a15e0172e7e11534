// Package contract holds answers against docs/openapi.yaml, for tests.
package contract

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"seckill/docs"
)

// Contract is the loaded API description.
type Contract struct {
	doc    *openapi3.T
	router routers.Router

	mu   sync.Mutex
	seen map[string]bool // "METHOD path status"
}

// Load reads the description and checks that it is valid itself.
func Load() (*Contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("load openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("openapi.yaml is not valid: %w", err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return &Contract{doc: doc, router: router, seen: map[string]bool{}}, nil
}

// Check validates one answer: its status, media type and body against the operation of its request. A request to a
// path or with a method that the contract does not have must have been refused with a Problem.
func (c *Contract) Check(req *http.Request, status int, header http.Header, body []byte) error {
	ctx := context.Background()
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		if status < 400 {
			return fmt.Errorf("%s %s is not in the contract, but was answered %d", req.Method, req.URL.Path, status)
		}
		return nil
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(ctx, in); err != nil {
		return fmt.Errorf("%s %s -> %d breaks the contract: %w", req.Method, req.URL.Path, status, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[fmt.Sprintf("%s %s %d", req.Method, route.Path, status)] = true
	return nil
}

// pushTag marks the operations of pushers; all others are the gateways'.
const pushTag = "push"

// Operations lists "METHOD path" of every operation of pushers, or of gateways, sorted.
func (c *Contract) Operations(ofPushers bool) []string {
	var ops []string
	for path, item := range c.doc.Paths.Map() {
		for method, op := range item.Operations() {
			if slices.Contains(op.Tags, pushTag) == ofPushers {
				ops = append(ops, method+" "+path)
			}
		}
	}
	slices.Sort(ops)
	return ops
}
