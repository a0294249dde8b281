// Package docs embeds files of this directory into programs.
package docs

import _ "embed"

// Permissions is rbac.yaml, which grants the CPI its permissions in a cluster.
//
//go:embed rbac.yaml
var Permissions string

// PermissionsOfUp is rbac-kubectl-bosh-up.yaml, which grants a user the permissions for `kubectl bosh up` if the CPI already has its own.
//
//go:embed rbac-kubectl-bosh-up.yaml
var PermissionsOfUp string
