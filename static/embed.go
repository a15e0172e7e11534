// Package static holds the buy page, the operator console and the JavaScript client, as files that need no build
// step. It only embeds them; the gateway serves them. seckill-client.js with the folder client is of use without the
// page; its tests in the folder test run in Node and in a browser and are not embedded.
package static

import "embed"

// Files are the pages and modules, by their paths below the site's root.
//
//go:embed *.html *.js *.css client console view
var Files embed.FS
