package main

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// FuzzInput checks that any input of a runtime or an operator is parsed, or rejected with an error of the specification.
func FuzzInput(f *testing.F) {
	for _, seed := range [][2]string{
		{"", ""}, {"{}", "K8S_POD_NAMESPACE=bosh;K8S_POD_NAME=agent-a"}, {"[]", "="}, {"null", ";;"},
		{`{"cniVersion":"1.0.0","name":"n","type":"cni-shim","kubernetes":{"kubeconfig":"/k"},"delegate":{"type":"bridge"}}`, "IgnoreUnknown=1"},
		{`{"cniVersion":"0.3.0","kubernetes":{"kubeconfig":"/k","timeout":"x"},"subnets":["10.0.0.0/8"]}`, "a"},
		{`{"kubernetes":{"kubeconfig":"/k"},"namespaces":"bosh","delegate":7}`, "a=b=c"},
	} {
		f.Add([]byte(seed[0]), seed[1])
	}
	f.Fuzz(func(t *testing.T, stdin []byte, cniArgs string) {
		checkError := func(err error) {
			var known *types.Error
			if err != nil && (!errors.As(err, &known) || known.Code == 0 || known.Msg == "") {
				t.Fatalf("%v is not an error of the specification", err)
			}
		}
		var s shim
		entry, err := s.parseEntry(stdin)
		checkError(err)
		if err == nil {
			_, err = parseConfig(entry)
			checkError(err)
			_, err = s.findDelegate(entry, "/nowhere", cniArgs)
			checkError(err)
		}
		_, err = parseArguments(cniArgs)
		checkError(err)
	})
}

// FuzzAnnotation checks that an annotation is rejected or parsed to valid addresses, at most one of each family.
func FuzzAnnotation(f *testing.F) {
	for _, value := range []string{"", "10.0.0.1", "10.0.0.1,2001:db8::1", " 10.0.0.1 , ::2 ", "127.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "10.0.0.1,10.0.0.2", "010.0.0.1"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		addresses, err := parseAddresses(value)
		if err != nil {
			return
		}
		if len(addresses) == 0 || len(addresses) > 2 || len(addresses) == 2 && addresses[0].Is4() == addresses[1].Is4() {
			t.Fatalf("%q is parsed to %v", value, addresses)
		}
		for _, address := range addresses {
			if !address.IsValid() || address.Zone() != "" || address.IsLoopback() || address.IsUnspecified() || address.IsMulticast() {
				t.Fatalf("%q is parsed to %v", value, addresses)
			}
		}
	})
}
