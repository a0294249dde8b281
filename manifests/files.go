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

// AdmissionPolicy is admission-policy.yaml, which limits what the CPI's service account can do in namespaces with its label.
//
//go:embed admission-policy.yaml
var AdmissionPolicy string

// AdmissionLimits is admission-limits.yaml, which AdmissionPolicy requires in each of these namespaces.
//
//go:embed admission-limits.yaml
var AdmissionLimits string

// NetworkPolicies is network-policy.yaml, which limits the traffic of VMs.
//
//go:embed network-policy.yaml
var NetworkPolicies string
