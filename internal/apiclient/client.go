// Package apiclient is a small client of the public HTTP API, for tests and load tests. It keeps no state but its
// connections, retries nothing, and turns problems into errors that carry their code.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Client speaks to one gateway for any number of users.
type Client struct {
	Base string // http://host:port
	HTTP *http.Client
	// Observe, when set, sees every answer: tests check it against the contract.
	Observe func(req *http.Request, status int, header http.Header, body []byte)
}

// New returns a client with connections of its own.
func New(base string, maxConns int) *Client {
	return &Client{Base: base, HTTP: &http.Client{
		Timeout:   40 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: maxConns, MaxConnsPerHost: maxConns, IdleConnTimeout: 30 * time.Second},
	}}
}

// Problem is an answer of application/problem+json.
type Problem struct {
	Status       int    `json:"status"`
	Code         string `json:"code"`
	Detail       string `json:"detail"`
	TraceID      string `json:"traceId"`
	ServerTime   int64  `json:"serverTime"`
	StartsAt     int64  `json:"startsAt"`
	RequestToken string `json:"requestToken"`
	RetryAfterMs int64  `json:"retryAfterMs"`
	ResultURL    string `json:"resultUrl"`
	PollAfterMs  int64  `json:"pollAfterMs"`
	OrderStatus  string `json:"orderStatus"`
}

// Error returns the status, code and detail.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// Result is a Result of the API.
type Result struct {
	Type         string `json:"type"`     // of a socket frame
	Position     int64  `json:"position"` // of a waitlist frame
	RequestToken string `json:"requestToken"`
	ActivityID   string `json:"activityId"`
	CommodityID  string `json:"commodityId"`
	Quantity     int    `json:"quantity"`
	Status       string `json:"status"`
	Reason       string `json:"reason"`
	OrderNo      string `json:"orderNo"`
	PayBefore    int64  `json:"payBefore"`
	Version      int64  `json:"version"`
	PollAfterMs  int64  `json:"pollAfterMs"`
	ResultURL    string `json:"resultUrl"`
}

// Item is an item of an Activity.
type Item struct {
	CommodityID string `json:"commodityId"`
	Title       string `json:"title"`
	Price       string `json:"price"`
	Total       int64  `json:"total"`
	Remaining   int64  `json:"remaining"`
	MaxPerUser  int    `json:"maxPerUser"`
}

// Activity is an Activity of the API.
type Activity struct {
	ActivityID string `json:"activityId"`
	Title      string `json:"title"`
	State      string `json:"state"`
	StartsAt   int64  `json:"startsAt"`
	EndsAt     int64  `json:"endsAt"`
	ServerTime int64  `json:"serverTime"`
	PushURL    string `json:"pushUrl"`
	Items      []Item `json:"items"`
}

// Order is an Order of the API.
type Order struct {
	OrderNo      string `json:"orderNo"`
	RequestToken string `json:"requestToken"`
	ActivityID   string `json:"activityId"`
	CommodityID  string `json:"commodityId"`
	Quantity     int    `json:"quantity"`
	PayAmount    string `json:"payAmount"`
	Status       string `json:"status"`
	Version      int64  `json:"version"`
	CreatedAt    int64  `json:"createdAt"`
	PayBefore    int64  `json:"payBefore"`
	PaidAt       int64  `json:"paidAt"`
	ClosedAt     int64  `json:"closedAt"`
}

// Me is the answer of /me.
type Me struct {
	ActivityID string  `json:"activityId"`
	State      string  `json:"state"`
	Result     *Result `json:"result"`
}

// Do makes one request and returns the raw answer.
func (c *Client) Do(ctx context.Context, method, path, bearer string, body []byte) (status int, header http.Header, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(res.Body, 32<<20))
	if err != nil {
		return 0, nil, nil, err
	}
	if c.Observe != nil {
		c.Observe(req, res.StatusCode, res.Header, answer)
	}
	return res.StatusCode, res.Header, answer, nil
}

// JSON makes one request and decodes the answer into out, or returns a *Problem.
func (c *Client) JSON(ctx context.Context, method, path, bearer string, body, out any) (status int, err error) {
	var b []byte
	if body != nil {
		if b, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	status, _, answer, err := c.Do(ctx, method, path, bearer, b)
	if err != nil {
		return 0, err
	}
	if status >= 300 {
		p := &Problem{}
		if err := json.Unmarshal(answer, p); err != nil || p.Code == "" {
			return status, fmt.Errorf("status %d without a problem: %.200q", status, answer)
		}
		return status, p
	}
	if out == nil || len(answer) == 0 {
		return status, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return status, fmt.Errorf("answer %.200q: %w", answer, err)
	}
	return status, nil
}

// RequestToken gets a request token.
func (c *Client) RequestToken(ctx context.Context, bearer, activityID string) (string, error) {
	var out struct{ RequestToken string }
	_, err := c.JSON(ctx, http.MethodPost, "/v1/activities/"+activityID+"/request-token", bearer, nil, &out)
	return out.RequestToken, err
}

// Buy posts an order request.
func (c *Client) Buy(ctx context.Context, bearer, activityID, commodityID, token string, quantity int) (status int, r Result, err error) {
	body := map[string]any{"requestToken": token, "commodityId": commodityID}
	if quantity != 1 {
		body["quantity"] = quantity
	}
	status, err = c.JSON(ctx, http.MethodPost, "/v1/activities/"+activityID+"/orders", bearer, body, &r)
	return status, r, err
}

// Result reads a result, waiting up to wait for a decision.
func (c *Client) Result(ctx context.Context, bearer, token string, wait time.Duration) (r Result, err error) {
	path := "/v1/results/" + token
	if wait > 0 {
		path += "?wait=" + url.QueryEscape(wait.String())
	}
	_, err = c.JSON(ctx, http.MethodGet, path, bearer, nil, &r)
	return r, err
}

// Me asks how the user stands in a sale.
func (c *Client) Me(ctx context.Context, bearer, activityID string) (m Me, err error) {
	_, err = c.JSON(ctx, http.MethodGet, "/v1/activities/"+activityID+"/me", bearer, nil, &m)
	return m, err
}

// Activity reads a sale.
func (c *Client) Activity(ctx context.Context, id string) (a Activity, err error) {
	_, err = c.JSON(ctx, http.MethodGet, "/v1/activities/"+id, "", nil, &a)
	return a, err
}

// Orders reads a page of the user's orders.
func (c *Client) Orders(ctx context.Context, bearer string, limit int, cursor string) (orders []Order, next string, err error) {
	var out struct {
		Orders     []Order `json:"orders"`
		NextCursor string  `json:"nextCursor"`
	}
	_, err = c.JSON(ctx, http.MethodGet, "/v1/orders?limit="+strconv.Itoa(limit)+"&cursor="+url.QueryEscape(cursor), bearer, nil, &out)
	return out.Orders, out.NextCursor, err
}

// ChangeOrder pays or cancels an order: verb is "pay" or "cancel".
func (c *Client) ChangeOrder(ctx context.Context, bearer, orderNo, verb string) (o Order, err error) {
	_, err = c.JSON(ctx, http.MethodPost, "/v1/orders/"+orderNo+"/"+verb, bearer, nil, &o)
	return o, err
}

// Sale is the body of a sale's creation.
type Sale struct {
	ActivityID string     `json:"activityId,omitempty"`
	Title      string     `json:"title"`
	StartsAt   any        `json:"startsAt"`
	EndsAt     any        `json:"endsAt"`
	PayWithin  string     `json:"payWithin,omitempty"`
	AllowList  bool       `json:"allowList,omitempty"`
	Items      []SaleItem `json:"items"`
}

// SaleItem is an item of a Sale.
type SaleItem struct {
	CommodityID string `json:"commodityId"`
	Title       string `json:"title"`
	Price       string `json:"price"`
	Total       int64  `json:"total"`
	MaxPerUser  int    `json:"maxPerUser,omitempty"`
}

// Admin runs an operator's command: verb is "" to create, else warm-up, open, pause, resume or end.
func (c *Client) Admin(ctx context.Context, adminToken, id, verb string, body any) (a Activity, err error) {
	path := "/admin/v1/activities"
	if verb != "" {
		path += "/" + id + "/" + verb
	}
	_, err = c.JSON(ctx, http.MethodPost, path, adminToken, body, &a)
	return a, err
}
