// Package environment is a folder with all that `bosh create-env` takes for a director on Kubernetes: what was decided, ops
// files, variables, rights and credentials. What is in it once stays: the operator may change it.
package environment
