package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/spf13/cobra"

	"seckill/internal/auth"
	"seckill/internal/config"
	"seckill/internal/sale"
)

// tokenCommand makes a JWT for development.
func (c *command) tokenCommand() *cobra.Command {
	var user string
	var life time.Duration
	cmd := &cobra.Command{
		Use: "token", Short: "Make a JWT for a user, signed with auth.jwtSecret; for development only", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			id, err := sale.ParseUserID(user)
			if err != nil {
				return usageError{fmt.Errorf("--user %q: want a positive decimal number", user)}
			}
			if cfg.Auth.JWTSecret == "" {
				return fmt.Errorf("%w: auth.jwtSecret is not set", config.ErrConfig)
			}
			token, err := auth.SignHS256([]byte(cfg.Auth.JWTSecret), id, cfg.Auth.Issuer, cfg.Auth.Audience, time.Now().Add(life))
			if err != nil {
				return err
			}
			if c.json {
				return json.NewEncoder(c.out).Encode(map[string]string{"token": token})
			}
			_, err = fmt.Fprintln(c.out, token)
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "user id")
	cmd.Flags().DurationVar(&life, "life", time.Hour, "how long the token is good")
	return cmd
}

// admin is a client of the admin API.
type admin struct {
	c      *command
	server string
	token  string
}

// adminFlags adds the flags that say which gateway to speak to.
func (c *command) adminFlags(cmd *cobra.Command) *admin {
	a := &admin{c: c}
	cmd.PersistentFlags().StringVar(&a.server, "server", "", "address of a gateway; default http:// and gateway.addr")
	cmd.PersistentFlags().StringVar(&a.token, "admin-token", "", "default auth.adminToken of the configuration")
	return a
}

// call makes one request and prints its answer.
func (a *admin) call(method, path string, body []byte) error {
	answer, err := a.ask(method, path, body)
	if err != nil {
		return err
	}
	return a.print(answer)
}

// ask makes one request and returns its answer.
func (a *admin) ask(method, path string, body []byte) ([]byte, error) {
	cfg, err := a.c.load()
	if err != nil {
		return nil, err
	}
	if a.server == "" {
		a.server = "http://" + cfg.Gateway.Addr
	}
	if a.token == "" {
		a.token = cfg.Auth.AdminToken
	}
	if a.token == "" {
		return nil, usageError{errors.New("an admin token is needed: --admin-token, SECKILL_AUTH_ADMIN_TOKEN or auth.adminToken")}
	}
	req, err := http.NewRequest(method, strings.TrimSuffix(a.server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, usageError{err}
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Timeout: 90 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the gateway: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode >= 300 {
		var p struct{ Code, Detail, TraceID string }
		if json.Unmarshal(answer, &p) != nil || p.Code == "" {
			return nil, fmt.Errorf("the gateway answered %s", res.Status)
		}
		return nil, fmt.Errorf("%s: %s (trace %s)", p.Code, p.Detail, p.TraceID)
	}
	return answer, nil
}

// print shows an answer: as it is with --json, indented for people.
func (a *admin) print(answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	if !a.c.json {
		var b bytes.Buffer
		if json.Indent(&b, answer, "", "  ") == nil {
			answer = b.Bytes()
		}
	}
	_, err := fmt.Fprintln(a.c.out, string(answer))
	return err
}

func (c *command) activityCommand() *cobra.Command {
	group := groupCommand("activity", "Create and run sales through a gateway's admin API")
	a := c.adminFlags(group)
	var file string
	create := &cobra.Command{
		Use: "create", Short: "Create a sale from a YAML file (a draft; warm it up next)", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			body, err := saleJSON(file)
			if err != nil {
				return usageError{err}
			}
			return a.call(http.MethodPost, "/admin/v1/activities", body)
		},
	}
	create.Flags().StringVarP(&file, "file", "f", "", "sale.yaml")
	list := &cobra.Command{
		Use: "list", Short: "List all sales", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.call(http.MethodGet, "/admin/v1/activities", nil) },
	}
	get := &cobra.Command{
		Use: "get ID", Short: "Show a sale", Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.call(http.MethodGet, activityPath(args[0], ""), nil)
		},
	}
	trace := &cobra.Command{
		Use: "trace TOKEN", Short: "Tell the story of one reservation", Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.call(http.MethodGet, "/admin/v1/reservations/"+url.PathEscape(args[0]), nil)
		},
	}
	group.AddCommand(create, list, get, trace)
	for _, verb := range [][2]string{
		{"warm-up", "Build the stock of a sale in Redis"}, {"open", "Start a sale now"}, {"pause", "Stop selling, for now"},
		{"resume", "Go on selling"}, {"end", "End a sale now"},
	} {
		group.AddCommand(&cobra.Command{
			Use: verb[0] + " ID", Short: verb[1], Args: exactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				return a.call(http.MethodPost, activityPath(args[0], "/"+verb[0]), nil)
			},
		})
	}
	return group
}

func activityPath(id, rest string) string {
	return "/admin/v1/activities/" + url.PathEscape(id) + rest
}

// saleJSON turns sale.yaml into the JSON body of the admin API.
func saleJSON(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("-f sale.yaml is required")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	// A time without quotes is a time to YAML; the API takes its text.
	for _, key := range []string{"startsAt", "endsAt", "waitlistUntil"} {
		if t, ok := doc[key].(time.Time); ok {
			doc[key] = t.Format(time.RFC3339)
		}
	}
	return json.Marshal(doc)
}

// errDifference is what `seckill audit` ends with, status 3, when Redis and the database disagree.
var errDifference = errors.New("redis and the database differ")

func (c *command) auditCommand() *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use: "audit ID", Short: "Compare a sale in Redis with the database; ends with status 3 when they differ", Args: exactArgs(1),
	}
	a := c.adminFlags(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "mend Redis")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		verb := "/audit"
		if repair {
			verb = "/reconcile"
		}
		answer, err := a.ask(http.MethodPost, activityPath(args[0], verb), nil)
		if err != nil {
			return err
		}
		if err := a.print(answer); err != nil {
			return err
		}
		var rep struct{ OK bool }
		if err := json.Unmarshal(answer, &rep); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if !rep.OK {
			return errDifference
		}
		return nil
	}
	return cmd
}

func (c *command) deadCommand() *cobra.Command {
	group := groupCommand("dead", "Look at dead letters, replay or discard them")
	a := c.adminFlags(group)
	var state string
	list := &cobra.Command{
		Use: "list", Short: "List dead letters, oldest first", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.call(http.MethodGet, "/admin/v1/dead-letters?state="+url.QueryEscape(state), nil)
		},
	}
	list.Flags().StringVar(&state, "state", "parked", "parked, replayed, discarded, or empty for all")
	group.AddCommand(list)
	for _, v := range []struct{ use, short, method, path string }{
		{"show", "Show one", http.MethodGet, ""},
		{"replay", "Put it back into the queue", http.MethodPost, "/replay"},
		{"discard", "Note that it needs nothing more", http.MethodPost, "/discard"},
	} {
		group.AddCommand(&cobra.Command{
			Use: v.use + " ID", Short: v.short, Args: exactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				return a.call(v.method, "/admin/v1/dead-letters/"+url.PathEscape(args[0])+v.path, nil)
			},
		})
	}
	return group
}

func (c *command) userCommand() *cobra.Command {
	group := groupCommand("user", "Block users from a sale, or put them on its allow-list")
	a := c.adminFlags(group)
	for _, v := range []struct{ use, short, method, list string }{
		{"block", "Block a user", http.MethodPut, "blocked"},
		{"unblock", "Unblock a user", http.MethodDelete, "blocked"},
		{"allow", "Put a user on the allow-list", http.MethodPut, "eligible"},
		{"disallow", "Take a user off the allow-list", http.MethodDelete, "eligible"},
	} {
		group.AddCommand(&cobra.Command{
			Use: v.use + " ACTIVITY USER", Short: v.short, Args: exactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error {
				return a.call(v.method, activityPath(args[0], "/"+v.list+"/"+url.PathEscape(args[1])), nil)
			},
		})
	}
	return group
}
