// Package docs embeds the contract of the HTTP API, which the gateway serves.
package docs

import _ "embed"

// OpenAPI is openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
