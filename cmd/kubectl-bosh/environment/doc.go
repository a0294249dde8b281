// Package environment plans a director on Kubernetes, and writes the directory with the files for `bosh create-env`: decisions, ops files,
// variables, RBAC objects and credentials. It does not overwrite decisions and files that operators may edit.
package environment
