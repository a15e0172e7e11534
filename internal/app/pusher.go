package app

import "context"

func (a *App) startPusher(_ context.Context) error {
	a.health(RolePusher)
	return nil
}
