// Package static holds the buy page, the operator console and the JavaScript client, as files that need no build
// step. It only embeds them; the gateway serves them.
package static

import "embed"

// Files are the pages and modules, by their paths below the site's root.
//
//go:embed *.html *.js *.css console
var Files embed.FS
