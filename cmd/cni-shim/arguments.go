package main

import (
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// arguments are the pairs KEY=VALUE of CNI_ARGS, in order: "alphanumeric key-value pairs separated by semicolons" (specification,
// section 2, Parameters).
type arguments []string

func parseArguments(cniArgs string) (arguments, error) {
	pairs := strings.FieldsFunc(cniArgs, func(char rune) bool { return char == ';' })
	for _, pair := range pairs {
		if !strings.Contains(pair, "=") {
			return nil, newError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS contains %q, which is not KEY=VALUE", pair)
		}
	}
	return pairs, nil
}

// get returns the value of key, or "" if there is none.
func (a arguments) get(key string) string {
	for _, pair := range a {
		if value, found := strings.CutPrefix(pair, key+"="); found {
			return value
		}
	}
	return ""
}

// with returns CNI_ARGS in which key occurs once, with the given value.
func (a arguments) with(key, value string) string {
	others := slices.DeleteFunc(slices.Clone(a), func(pair string) bool { return strings.HasPrefix(pair, key+"=") })
	return strings.Join(append(others, key+"="+value), ";")
}
