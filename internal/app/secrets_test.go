package app

import (
	"os"
	"path/filepath"
	"testing"
)

// A restart on the same data folder has the same secrets: without them, what is in its queue could not be decided and nobody could
// ask for a result. Configured ones come first, and are written nowhere.
func TestSecretsOutliveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	choose := func(dir, configured string) AuthConfig {
		a := &App{cfg: Config{Data: dir, Auth: AuthConfig{RequestTokenSecret: configured}}}
		if err := a.chooseSecrets(); err != nil {
			t.Fatal(err)
		}
		return a.cfg.Auth
	}
	first, second := choose(dir, ""), choose(dir, "")
	if first != second || len(first.RequestTokenSecret) < 16 || first.JWTSecret == first.RequestTokenSecret {
		t.Errorf("%+v, then %+v", first, second)
	}
	if third := choose(dir, "a configured secret"); third.RequestTokenSecret != "a configured secret" || third.JWTSecret != first.JWTSecret {
		t.Errorf("%+v", third)
	}
	if one, other := choose("", ""), choose("", ""); one == other {
		t.Error("without a folder the secrets are the same twice")
	}
	path := filepath.Join(dir, "secrets.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&App{cfg: Config{Data: dir}}).chooseSecrets(); err == nil {
		t.Error("an unreadable file is taken for none")
	}
}
