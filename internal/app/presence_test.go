package app_test

import (
	"net/http"
	"testing"
	"time"
)

// S28: operators see how many look at a sale, and where.
func TestPresence(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 1))
	for id := int64(9701); id <= 9703; id++ {
		s.openSocket(t, user(t, id), act)
	}
	var got struct {
		Sockets, Users int
		Activities     []struct {
			ActivityID string
			Viewers    int
		}
		Nodes []struct {
			Node    string
			Sockets int
			At      int64
		}
	}
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, err := s.api.JSON(t.Context(), http.MethodGet, "/admin/v1/presence", s.admin, nil, &got); err != nil {
			t.Fatal(err)
		}
		for _, a := range got.Activities {
			if a.ActivityID == act && a.Viewers == 3 {
				if got.Sockets < 3 || got.Users < 3 || len(got.Nodes) != 1 || got.Nodes[0].Node != s.app.Config().Node {
					t.Errorf("%+v", got)
				}
				return
			}
		}
	}
	t.Errorf("three viewers are not seen: %+v", got)
}
