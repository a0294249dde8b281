package main

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// arguments are the pairs of CNI_ARGS, in order: "alphanumeric key-value pairs separated by semicolons" (specification, section 2,
// Parameters).
type arguments [][2]string

func parseArguments(cniArgs string) (arguments, error) {
	var parsed arguments
	for pair := range strings.SplitSeq(cniArgs, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, newError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS contains %q, which is not KEY=VALUE", pair)
		}
		parsed = append(parsed, [2]string{key, value})
	}
	return parsed, nil
}

// get returns the value of key, or "" if there is none.
func (a arguments) get(key string) string {
	for _, pair := range a {
		if pair[0] == key {
			return pair[1]
		}
	}
	return ""
}

// with returns a copy in which key occurs once, with the given value.
func (a arguments) with(key, value string) arguments {
	var result arguments
	for _, pair := range a {
		if pair[0] != key {
			result = append(result, pair)
		}
	}
	return append(result, [2]string{key, value})
}

func (a arguments) String() string {
	pairs := make([]string, 0, len(a))
	for _, pair := range a {
		pairs = append(pairs, pair[0]+"="+pair[1])
	}
	return strings.Join(pairs, ";")
}
