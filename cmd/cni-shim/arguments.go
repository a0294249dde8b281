package main

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// arguments are CNI_ARGS: "alphanumeric key-value pairs separated by semicolons" (specification,
// section 2, Parameters), in their order.
type arguments [][2]string

func parseArguments(text string) (arguments, error) {
	var parsed arguments
	for pair := range strings.SplitSeq(text, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, failure(types.ErrInvalidEnvironmentVariables, "CNI_ARGS holds %q, which is no KEY=VALUE", pair)
		}
		parsed = append(parsed, [2]string{key, value})
	}
	return parsed, nil
}

// get returns the value of a key; empty when it is not there.
func (a arguments) get(key string) string {
	for _, pair := range a {
		if pair[0] == key {
			return pair[1]
		}
	}
	return ""
}

// with returns a copy in which the key has this value alone.
func (a arguments) with(key, value string) arguments {
	var changed arguments
	for _, pair := range a {
		if pair[0] != key {
			changed = append(changed, pair)
		}
	}
	return append(changed, [2]string{key, value})
}

func (a arguments) String() string {
	pairs := make([]string, 0, len(a))
	for _, pair := range a {
		pairs = append(pairs, pair[0]+"="+pair[1])
	}
	return strings.Join(pairs, ";")
}
