package main

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Codes of errors beside those that the specification knows. It leaves 100 and above to plugins
// (section 5: Result Types, Error).
const (
	// codeRequest: the Pod's annotation cannot be understood or fulfilled.
	codeRequest uint = 100
	// codeIgnored: the delegate gave the Pod another address than the one it asked for.
	codeIgnored uint = 101
	// codeForbidden: the API server does not let the shim read Pods.
	codeForbidden uint = 102

	// codeUnavailable: the specification's 50, "the plugin cannot service ADD requests", for STATUS.
	codeUnavailable uint = 50
)

func failure(code uint, format string, values ...any) *types.Error {
	return types.NewError(code, fmt.Sprintf(format, values...), "")
}
