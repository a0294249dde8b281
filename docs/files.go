// Package docs holds what programs need of this folder.
package docs

import _ "embed"

// Rights is rbac.yaml: all that the CPI may do in a cluster.
//
//go:embed rbac.yaml
var Rights string

// RightsOfUp is rbac-kubectl-bosh-up.yaml: what somebody needs to run `kubectl bosh up` where the CPI has its rights already.
//
//go:embed rbac-kubectl-bosh-up.yaml
var RightsOfUp string
