// Package manifests embeds files of this directory into programs.
package manifests

import "embed"

// Files contains the ops files and configs by name.
//
//go:embed *.yml
var Files embed.FS

// Permissions is rbac.yaml, which grants the CPI its permissions in a cluster.
//
//go:embed rbac.yaml
var Permissions string

// PermissionsOfUp is rbac-kubectl-bosh-up.yaml, which grants a user the permissions for `kubectl bosh up` if the CPI already has its own.
//
//go:embed rbac-kubectl-bosh-up.yaml
var PermissionsOfUp string
