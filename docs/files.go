// Package docs embeds files of this directory into programs.
package docs

import _ "embed"

// Rights is rbac.yaml, which grants the CPI its rights in a cluster.
//
//go:embed rbac.yaml
var Rights string

// RightsOfUp is rbac-kubectl-bosh-up.yaml, which grants a user the rights for `kubectl bosh up` if the CPI already has its own.
//
//go:embed rbac-kubectl-bosh-up.yaml
var RightsOfUp string
