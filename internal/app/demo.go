package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// createDemo creates the demo sale. One of an earlier start in the same data folder is left as it is.
func (a *App) createDemo(ctx context.Context) (*sale.Activity, error) {
	now := time.Now().UTC().Truncate(time.Second)
	starts := now.Add(a.cfg.Demo.OpensIn)
	act := &sale.Activity{
		ID: "DEMO" + now.Format("20060102150405"), Title: "Demo flash sale 演示秒杀", StartsAt: starts, EndsAt: starts.Add(a.cfg.Demo.LastsFor),
		PayWithin: sale.DefaultPayWithin, CloseGrace: sale.DefaultCloseGrace,
		WaitlistUntil: starts.Add(a.cfg.Demo.LastsFor + sale.DefaultWaitlistAfterEnd), State: sale.StateDraft,
		Items: []sale.Item{
			demoItem("PHONE", "Phone 手机", "1999.00", 10),
			demoItem("HEADSET", "Headset 耳机", "99.00", 50),
			demoItem("KETTLE", "Kettle 水壶", "19.90", 3),
		},
	}
	if err := a.ledger.CreateActivity(ctx, act); err != nil && !errors.Is(err, sale.ErrExists) {
		return nil, fmt.Errorf("create demo sale: %w", err)
	}
	err := a.ledger.SetActivityState(ctx, act.ID, []sale.State{sale.StateDraft}, sale.StateScheduled)
	if err != nil && !errors.Is(err, sale.ErrConflict) {
		return nil, fmt.Errorf("schedule demo sale: %w", err)
	}
	return act, nil
}

func demoItem(id, title, price string, total int64) sale.Item {
	return sale.Item{CommodityID: id, Title: title, Price: decimal.RequireFromString(price), Total: total, MaxPerUser: 1}
}

// welcome tells where to click, and one line that buys.
func (a *App) welcome(w io.Writer, act *sale.Activity) {
	base := "http://" + a.Addr(RoleGateway)
	fmt.Fprintf(w, "\nSeckill runs on embedded back ends: for trying out, not for a real sale.\n\n")
	fmt.Fprintf(w, "  Buy page       %s/\n", base)
	fmt.Fprintf(w, "  Console        %s/console/\n", base)
	fmt.Fprintf(w, "  Admin token    %s\n", a.cfg.Auth.AdminToken)
	if a.cfg.Data != "" {
		fmt.Fprintf(w, "  Data folder    %s\n", a.cfg.Data)
	}
	if act != nil {
		item := act.Items[1].CommodityID
		fmt.Fprintf(w, "\n  The demo sale %s opens at %s. One line that buys a %s then, as user 42:\n\n", act.ID, act.StartsAt.Local().Format("15:04:05"), item)
		fmt.Fprintf(w, `  B=%s; J='Content-Type: application/json'; T=$(curl -s $B/demo/login -H "$J" -d '{"userId":"42"}' | cut -d'"' -f4); R=$(curl -s -X POST $B/v1/activities/%s/request-token -H "Authorization: Bearer $T" | cut -d'"' -f4); curl -s $B/v1/activities/%s/orders -H "Authorization: Bearer $T" -H "$J" -d '{"requestToken":"'$R'","commodityId":"%s"}'; sleep 0.3; curl -s $B/v1/results/$R -H "Authorization: Bearer $T"`+"\n",
			base, act.ID, act.ID, item)
	}
	fmt.Fprintf(w, "\n  Ctrl-C stops.\n\n")
}

// Serve runs the roles until ctx ends or one of them ends by itself, and stops in order. What a person should see
// goes to out.
func Serve(ctx context.Context, a *App, out io.Writer) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	if a.embedded != nil {
		var act *sale.Activity
		if !a.cfg.Demo.Off {
			var err error
			if act, err = a.createDemo(ctx); err != nil {
				return errors.Join(err, a.Stop())
			}
		}
		a.welcome(out, act)
	} else {
		for _, role := range a.roles {
			a.log.Info("listening", "role", role, "addr", a.Addr(role))
		}
	}
	var failed error
	select {
	case <-ctx.Done():
		a.log.Info("stopping")
	case failed = <-a.Failed():
		a.log.Error("stopping", "err", failed)
	}
	return errors.Join(failed, a.Stop())
}
