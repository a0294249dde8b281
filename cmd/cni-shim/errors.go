package main

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Error codes in addition to those of the specification, which reserves 100 and above for plugins (section 5: Result Types,
// Error).
const (
	// codeInvalidRequest: the Pod's annotation is malformed, or requests an address that cannot be assigned.
	codeInvalidRequest uint = 100
	// codeAddressIgnored: the delegate did not assign a requested address.
	codeAddressIgnored uint = 101
	// codeForbidden: the shim lacks permission to get Pods.
	codeForbidden uint = 102

	// codeUnavailable: the specification's code for STATUS, "the plugin cannot service ADD requests".
	codeUnavailable uint = 50
)

func newError(code uint, format string, values ...any) *types.Error {
	return types.NewError(code, fmt.Sprintf(format, values...), "")
}
