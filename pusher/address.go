package pusher

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// addresses counts the sockets of each client address.
type addresses struct {
	limit   int
	proxies []netip.Prefix

	mu   sync.Mutex
	open map[netip.Addr]int
}

func newAddresses(limit int, proxies []string) (*addresses, error) {
	a := &addresses{limit: limit, open: make(map[netip.Addr]int)}
	for _, s := range proxies {
		prefix, err := netip.ParsePrefix(s)
		if addr, addrErr := netip.ParseAddr(s); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("pusher.trustedProxies: %q: want an address or a CIDR", s)
		}
		a.proxies = append(a.proxies, prefix)
	}
	return a, nil
}

// of is the address that a request counts for: the peer's, or, behind trusted proxies, the last one in X-Forwarded-For
// that none of them has. An IPv6 client owns a whole /64, so that is what is counted.
func (a *addresses) of(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // no TCP: all such clients share one count
	}
	addr := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && a.trusted(addr); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = next.Unmap()
	}
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}

func (a *addresses) trusted(addr netip.Addr) bool {
	for _, p := range a.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// take counts one socket more, or reports false when the address has as many as allowed.
func (a *addresses) take(addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[addr] >= a.limit {
		return false
	}
	a.open[addr]++
	return true
}

// release is the end of a socket that take allowed.
func (a *addresses) release(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[addr]--; a.open[addr] <= 0 {
		delete(a.open, addr)
	}
}
