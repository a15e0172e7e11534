package pusher

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// origins decides which pages may open a socket (FS-075). The policy:
//   - no Origin header: no browser sent it, the token alone decides;
//   - with configured origins: exactly these, scheme and port included;
//   - without: the host and port by which the pusher itself was reached, and http only if it was reached by http.
//
// "null", anything that is no plain origin, and more than one header are refused.
type origins struct {
	allowed map[string]bool // in the form of normalOrigin; empty: the own host
}

func newOrigins(configured []string) (origins, error) {
	o := origins{allowed: make(map[string]bool, len(configured))}
	for _, s := range configured {
		scheme, host, ok := normalOrigin(s)
		if !ok {
			return o, fmt.Errorf("pusher.origins: %q: want scheme://host[:port]", s)
		}
		o.allowed[scheme+"://"+host] = true
	}
	return o, nil
}

func (o origins) allow(r *http.Request) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	scheme, host, ok := normalOrigin(values[0])
	if len(values) > 1 || !ok {
		return false
	}
	if len(o.allowed) > 0 {
		return o.allowed[scheme+"://"+host]
	}
	secure := r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
	_, own, ok := normalOrigin(scheme + "://" + r.Host)
	return ok && own == host && (scheme == "https" || !secure)
}

// normalOrigin splits an origin into its scheme and its host, in small letters and without the scheme's own port.
func normalOrigin(s string) (scheme, host string, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return "", "", false
	}
	scheme, host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	default:
		return "", "", false
	}
	return scheme, host, true
}
