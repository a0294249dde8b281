// Package manifests holds this folder's ops files and configs, for programs that write them out.
package manifests

import "embed"

// Files are the ops files and configs, by their names.
//
//go:embed *.yml
var Files embed.FS
