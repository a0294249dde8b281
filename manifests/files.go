// Package manifests embeds the ops files and configs of this directory into programs that write them to files.
package manifests

import "embed"

// Files contains the ops files and configs by name.
//
//go:embed *.yml
var Files embed.FS
