package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// orderBody is the body of an order request.
type orderBody struct {
	RequestToken string `json:"requestToken"`
	CommodityID  string `json:"commodityId"`
	Quantity     int    `json:"quantity"`
}

// parseOrder reads and checks an order body. Quantity is 1 when it is left out, and refused when it is 0 or less, or
// null, before anything is asked of Redis (FS-022).
func parseOrder(ctx *fasthttp.RequestCtx) (orderBody, error) {
	b := orderBody{Quantity: unset}
	if err := parseBody(ctx, &b); err != nil {
		return b, err
	}
	return b.checked()
}

// checked fills the quantity that was left out, and checks every member.
func (b orderBody) checked() (orderBody, error) {
	if b.Quantity == unset {
		b.Quantity = 1
	}
	switch {
	case b.RequestToken == "":
		return b, refuse(sale.CodeInvalidRequest, "requestToken: is required")
	case !sale.ValidToken(b.RequestToken):
		return b, refuse(sale.CodeInvalidToken, "the request token is malformed")
	case !sale.ValidID(b.CommodityID):
		return b, refuse(sale.CodeInvalidRequest, "commodityId: must match [A-Za-z0-9_-]{1,32}")
	case b.Quantity < 1 || b.Quantity > sale.MaxQuantity:
		return b, refuse(sale.CodeInvalidRequest, fmt.Sprintf("quantity: must be between 1 and %d", sale.MaxQuantity))
	}
	return b, nil
}

// unset marks a number that the body did not give.
const unset = -1 << 31

// parseBody reads a JSON object strictly: one value, no unknown and no doubled members, valid UTF-8. The strings it
// yields are copies (FS-024).
func parseBody(ctx *fasthttp.RequestCtx, into any) error {
	ct := string(ctx.Request.Header.ContentType())
	if media, _, _ := strings.Cut(ct, ";"); !strings.EqualFold(strings.TrimSpace(media), "application/json") {
		return refuse(sale.CodeUnsupportedMediaType, "the body must be application/json")
	}
	return decodeStrict(ctx.PostBody(), into)
}

func decodeStrict(body []byte, into any) error {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' {
		return refuse(sale.CodeInvalidRequest, "the body must be a JSON object")
	}
	err := json.Unmarshal(body, into, json.RejectUnknownMembers(true))
	if err != nil {
		var semantic *json.SemanticError
		if errors.As(err, &semantic) {
			return refuse(sale.CodeInvalidRequest, semanticDetail(semantic))
		}
		return refuse(sale.CodeInvalidRequest, "the body is no valid JSON object, or names a member twice")
	}
	return nil
}

// semanticDetail names the member at fault without echoing what was sent.
func semanticDetail(e *json.SemanticError) string {
	field := strings.TrimPrefix(string(e.JSONPointer), "/")
	if len(field) > 40 {
		field = field[:40]
	}
	field = strings.ToValidUTF8(field, "?")
	switch {
	case field == "":
		return "the body does not have the expected form"
	case errors.Is(e.Err, json.ErrUnknownName):
		return fmt.Sprintf("%q: there is no such member", field)
	}
	return fmt.Sprintf("%q: has the wrong type or is out of range", field)
}

// noBody accepts an empty body or an empty object, whatever its media type.
func noBody(ctx *fasthttp.RequestCtx) error {
	b := bytes.TrimSpace(ctx.PostBody())
	if len(b) == 0 || string(b) == "{}" {
		return nil
	}
	return refuse(sale.CodeInvalidRequest, "this request takes no body")
}

// writeJSON answers with a JSON body that must not be cached (FS-092).
func writeJSON(ctx *fasthttp.RequestCtx, status int, body []byte) {
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.SetBody(body)
}

// answer encodes a value as the JSON body.
func answer(ctx *fasthttp.RequestCtx, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	writeJSON(ctx, status, b)
	return nil
}

// bearer returns the token of the Authorization header, as a copy.
func bearer(ctx *fasthttp.RequestCtx) string {
	h := ctx.Request.Header.Peek(fasthttp.HeaderAuthorization)
	const prefix = "Bearer "
	if len(h) <= len(prefix) || !strings.EqualFold(string(h[:len(prefix)]), prefix) {
		return ""
	}
	return string(h[len(prefix):])
}

// user returns who is asking, or unauthenticated.
func (g *Gateway) user(ctx *fasthttp.RequestCtx) (int64, error) {
	id, err := g.users.UserOf(bearer(ctx))
	if err != nil {
		ctx.Response.Header.Set("WWW-Authenticate", `Bearer realm="seckill"`)
		return 0, refuse(sale.CodeUnauthenticated, "a valid bearer token is required")
	}
	return id, nil
}

// reader returns who is asking, within the user's rate of reads.
func (g *Gateway) reader(ctx *fasthttp.RequestCtx) (int64, error) {
	id, err := g.user(ctx)
	if err != nil {
		return 0, err
	}
	if ok, after := g.reads.allow(id); !ok {
		return 0, retryLater(sale.CodeRateLimited, "you are asking too often", after)
	}
	return id, nil
}

// storeContext bounds one call to Redis or the database. It does not follow the RequestCtx, whose Done means the
// server's end and whose memory is reused.
func (g *Gateway) storeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), g.cfg.StoreTimeout)
}

// storeError is a failed call to Redis that changed nothing.
func (g *Gateway) storeError(what string, err error) error {
	g.log.Warn("gateway: redis", "call", what, "err", err)
	return retryLater(sale.CodeOverloaded, "busy, please try again", time.Second)
}

// activity returns an activity from the local catalog, or sale.ErrNotFound.
func (g *Gateway) activity(id string) (*entry, error) {
	ctx, cancel := g.storeContext()
	defer cancel()
	return g.catalog.get(ctx, id)
}
