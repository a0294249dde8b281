// Package environment plans a director on Kubernetes, and writes the directory with the files for `bosh create-env`: up.yml with the
// decisions, ops files, variables, RBAC objects and credentials. It does not overwrite up.yml and other files that operators may edit.
package environment
