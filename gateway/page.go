package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/url"
	"path"
	"strings"

	"github.com/valyala/fasthttp"

	"seckill/static"
)

// asset is one file of the page, kept in memory.
type asset struct {
	body        []byte
	contentType string
	etag        string
	policy      string
}

// loadAssets reads the embedded page. The content policy lets the page run its own modules and talk to this gateway
// and the pushers, and nothing else (FS-091).
func loadAssets(pushURL string) (map[string]asset, error) {
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'" +
		connectSources(pushURL) + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	out := map[string]asset{}
	err := fs.WalkDir(static.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) == ".go" {
			return err
		}
		body, err := fs.ReadFile(static.Files, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		a := asset{body: body, contentType: contentType(name), etag: `"` + hex.EncodeToString(sum[:8]) + `"`, policy: policy}
		out["/"+name] = a
		if path.Base(name) == "index.html" {
			dir := strings.TrimSuffix(name, "index.html")
			out["/"+dir] = a
		}
		return nil
	})
	return out, err
}

// connectSources are the push endpoint as socket and as event stream.
func connectSources(pushURL string) string {
	u, err := url.Parse(pushURL)
	if err != nil || u.Host == "" {
		return ""
	}
	secure := u.Scheme == "wss" || u.Scheme == "https"
	if secure {
		return " wss://" + u.Host + " https://" + u.Host
	}
	return " ws://" + u.Host + " http://" + u.Host
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// serve answers the file. The browser asks again each time and is told when nothing changed, so a new version of the
// page is seen at once (FS-092).
func (a asset) serve(ctx *fasthttp.RequestCtx, _ request) error {
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", a.policy)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	if string(ctx.Request.Header.Peek("If-None-Match")) == a.etag {
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	}
	ctx.SetContentType(a.contentType)
	ctx.SetBody(a.body)
	return nil
}
