// Package config loads a configuration struct from defaults, a YAML file, the environment and flags, each over the one
// before. It knows no key by name: the struct is the list of keys, and a key that is not in it is an error.
//
// Keys are the field names with a small first letter, joined by dots: Gateway.MaxBodyBytes is gateway.maxBodyBytes in
// YAML and on the command line, and SECKILL_GATEWAY_MAX_BODY_BYTES in the environment.
package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// EnvPrefix starts the name of every environment variable that is read.
const EnvPrefix = "SECKILL_"

// notConfig are variables of the same prefix that belong to the tests.
var notConfig = []string{"SECKILL_TEST_", "SECKILL_REQUIRE", "SECKILL_LONG", "SECKILL_E2E", "SECKILL_INSTALL"}

// ErrConfig is returned for a file that cannot be read, an unknown key, or a value of the wrong form or below zero.
var ErrConfig = errors.New("configuration")

// Load fills the struct that into points to. Its values are the defaults; path may be empty; env is os.Environ();
// flags are key=value pairs.
func Load(into any, path string, env, flags []string) error {
	keys := map[string]reflect.Value{}
	walk("", reflect.ValueOf(into).Elem(), keys)
	k := koanf.New(".")
	if path != "" {
		if err := loadFile(k, path, keys); err != nil {
			return err
		}
	}
	over, err := fromEnv(env, keys)
	if err != nil {
		return err
	}
	for _, f := range flags {
		key, value, ok := strings.Cut(f, "=")
		if _, known := keys[key]; !ok || !known {
			return fmt.Errorf("%w: flag %q: want key=value with a known key", ErrConfig, f)
		}
		over[key] = value
	}
	if err := k.Load(confmap.Provider(over, "."), nil); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return fill(k, keys)
}

// walk collects the leaves of a struct by key. Functions, interfaces and pointers are no configuration.
func walk(prefix string, v reflect.Value, out map[string]reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		key := prefix
		if !f.Anonymous {
			key = strings.TrimPrefix(prefix+"."+lowerCamel(f.Name), ".")
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			walk(key, v.Field(i), out)
		case reflect.Func, reflect.Interface, reflect.Pointer, reflect.Map, reflect.Chan:
		default:
			out[key] = v.Field(i)
		}
	}
}

// lowerCamel turns a field name into a key: MaxBodyBytes is maxBodyBytes, PushURL is pushURL, DSN is dsn.
func lowerCamel(name string) string {
	r := []rune(name)
	for i := range r {
		if i > 0 && i+1 < len(r) && unicode.IsLower(r[i+1]) {
			break
		}
		if unicode.IsLower(r[i]) {
			break
		}
		r[i] = unicode.ToLower(r[i])
	}
	return string(r)
}

func loadFile(k *koanf.Koanf, path string, keys map[string]reflect.Value) error {
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return fmt.Errorf("%w: file %s: %w", ErrConfig, path, err)
	}
	for _, key := range k.Keys() {
		if _, ok := keys[key]; !ok {
			return fmt.Errorf("%w: file %s: unknown key %q", ErrConfig, path, key)
		}
	}
	return nil
}

// fromEnv maps variables to keys: letters and digits decide, so SECKILL_GATEWAY_MAX_BODY_BYTES and
// SECKILL_GATEWAY_MAXBODYBYTES are the same.
func fromEnv(env []string, keys map[string]reflect.Value) (map[string]any, error) {
	byName := map[string]string{}
	for key := range keys {
		byName[bare(key)] = key
	}
	out := map[string]any{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		rest, ok := strings.CutPrefix(name, EnvPrefix)
		if !ok || slices.ContainsFunc(notConfig, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		key, ok := byName[bare(rest)]
		if !ok {
			return nil, fmt.Errorf("%w: environment variable %s names no key", ErrConfig, name)
		}
		out[key] = value
	}
	return out, nil
}

func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

// fill writes the loaded values into the struct, each checked for its form.
func fill(k *koanf.Koanf, keys map[string]reflect.Value) error {
	for key, field := range keys {
		if !k.Exists(key) {
			continue
		}
		d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
			Result: field.Addr().Interface(), WeaklyTypedInput: true,
			DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), commaList),
		})
		if err == nil {
			err = d.Decode(k.Get(key))
		}
		if err != nil {
			return fmt.Errorf("%w: %s: must be a %s", ErrConfig, key, form(field.Type()))
		}
		if (field.CanInt() && field.Int() < 0) || (field.CanFloat() && field.Float() < 0) {
			return fmt.Errorf("%w: %s: must not be negative", ErrConfig, key)
		}
	}
	return nil
}

// commaList lets a list be written a,b,c in the environment and on the command line. An empty text is an empty list.
func commaList(from, to reflect.Type, v any) (any, error) {
	if from.Kind() != reflect.String || to.Kind() != reflect.Slice {
		return v, nil
	}
	s, ok := v.(string)
	if !ok || s == "" {
		return []string{}, nil
	}
	return strings.Split(s, ","), nil
}

func form(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "duration such as 250ms or 15m"
	}
	if t.Kind() == reflect.Slice {
		return "list"
	}
	return t.Kind().String()
}

// Print lists the effective configuration, one "key: value" a line in the order of the keys, with secrets masked.
func Print(of any) string {
	keys := map[string]reflect.Value{}
	walk("", reflect.ValueOf(of).Elem(), keys)
	names := make([]string, 0, len(keys))
	for key := range keys {
		names = append(names, key)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, key := range names {
		fmt.Fprintf(&b, "%s: %s\n", key, show(key, keys[key]))
	}
	return b.String()
}

// show prints a value. What may hold a secret is shown as set or not set.
func show(key string, v reflect.Value) string {
	low := strings.ToLower(key)
	for _, word := range []string{"secret", "password", "admintoken", "dsn"} {
		if strings.HasSuffix(low, word) {
			if v.IsZero() {
				return `""`
			}
			return "********"
		}
	}
	switch x := v.Interface().(type) {
	case string:
		return fmt.Sprintf("%q", x)
	case []string:
		return fmt.Sprintf("%q", x)
	default:
		return fmt.Sprint(x)
	}
}
