package gateway

import (
	"cmp"
	"slices"

	"github.com/valyala/fasthttp"

	"seckill/internal/sale"
)

// viewersJSON is how many sockets look at a sale.
type viewersJSON struct {
	ActivityID string `json:"activityId"`
	Viewers    int    `json:"viewers"`
}

// nodeJSON is one pusher.
type nodeJSON struct {
	Node    string `json:"node"`
	Sockets int    `json:"sockets"`
	Users   int    `json:"users"`
	At      int64  `json:"at"`
}

// presenceJSON is all pushers together. A user with sockets at two pushers counts twice.
type presenceJSON struct {
	Sockets    int           `json:"sockets"`
	Users      int           `json:"users"`
	Activities []viewersJSON `json:"activities"`
	Nodes      []nodeJSON    `json:"nodes"`
}

// presence answers who is connected, as the pushers told within the last minute.
func (g *Gateway) presence(ctx *fasthttp.RequestCtx, _ request) error {
	within, cancel := g.storeContext()
	defer cancel()
	all, err := g.announcer.Presences(within, g.now())
	if err != nil {
		return err
	}
	out := presenceJSON{Activities: []viewersJSON{}, Nodes: []nodeJSON{}}
	viewers := map[string]int{}
	for i := range all {
		p := &all[i]
		out.Sockets += p.Sockets
		out.Users += p.Users
		for id, n := range p.Viewers {
			viewers[id] += n
		}
		out.Nodes = append(out.Nodes, nodeJSON{p.Node, p.Sockets, p.Users, sale.Millis(p.At)})
	}
	for id, n := range viewers {
		out.Activities = append(out.Activities, viewersJSON{id, n})
	}
	slices.SortFunc(out.Activities, func(a, b viewersJSON) int { return cmp.Compare(a.ActivityID, b.ActivityID) })
	slices.SortFunc(out.Nodes, func(a, b nodeJSON) int { return cmp.Compare(a.Node, b.Node) })
	return answer(ctx, fasthttp.StatusOK, out)
}
