// Package docs holds what programs need of this folder.
package docs

import _ "embed"

// Rights is rbac.yaml: all that the CPI may do in a cluster.
//
//go:embed rbac.yaml
var Rights string
