// Command testdelegate is a CNI plugin for the tests of the shim. It records its calls. The key "test" of its configuration selects
// its behavior. It supports all conventions for requested addresses.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Call is the record of a call. Each call is a line of JSON.
type Call struct {
	Command, Args, ContainerID, NetNS, IfName string
	Stdin                                     json.RawMessage
}

type config struct {
	CNIVersion    string `json:"cniVersion"`
	RuntimeConfig struct {
		IPs []string `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	Test struct {
		Record string   `json:"record"` // path of the file to record calls in
		Assign []string `json:"assign"` // addresses to assign instead of the requested ones
		Print  string   `json:"print"`  // output instead of a result
		Fail   []string `json:"fail"`   // commands that fail with an error document
		Crash  []string `json:"crash"`  // commands that fail without an error document
		Stderr string   `json:"stderr"` // text to write to stderr
	} `json:"test"`
}

func main() {
	stdin, err := io.ReadAll(os.Stdin)
	exitOnError(err)
	var c config
	exitOnError(json.Unmarshal(stdin, &c))
	command := os.Getenv("CNI_COMMAND")
	recordCall(c.Test.Record, Call{
		command, os.Getenv("CNI_ARGS"), os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_NETNS"), os.Getenv("CNI_IFNAME"), stdin,
	})
	fmt.Fprint(os.Stderr, c.Test.Stderr)
	switch {
	case slices.Contains(c.Test.Crash, command):
		os.Exit(2)
	case slices.Contains(c.Test.Fail, command):
		fmt.Fprintf(os.Stdout, `{"cniVersion":%q,"code":117,"msg":"the delegate cannot %s","details":"for a test"}`, c.CNIVersion, command)
		os.Exit(1)
	case c.Test.Print != "":
		fmt.Fprint(os.Stdout, c.Test.Print)
	case command == "ADD":
		exitOnError(json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": c.CNIVersion, "ips": assignedAddresses(c), "unknown": "kept"}))
	}
}

// assignedAddresses applies the conventions with the same precedence as host-local and static.
func assignedAddresses(c config) []map[string]string {
	var assigned []string
	for pair := range strings.SplitSeq(os.Getenv("CNI_ARGS"), ";") {
		if ip, found := strings.CutPrefix(pair, "IP="); found {
			assigned = []string{ip}
		}
	}
	for _, addresses := range [][]string{c.Args.CNI.IPs, c.RuntimeConfig.IPs, c.Test.Assign} {
		if len(addresses) > 0 {
			assigned = addresses
		}
	}
	if len(assigned) == 0 {
		assigned = []string{"10.9.9.9/24"}
	}
	ips := []map[string]string{}
	for _, ip := range assigned {
		switch {
		case strings.Contains(ip, "/"):
		case strings.Contains(ip, ":"):
			ip += "/64"
		default:
			ip += "/24"
		}
		ips = append(ips, map[string]string{"address": ip, "version": map[bool]string{true: "6", false: "4"}[strings.Contains(ip, ":")]})
	}
	return ips
}

func recordCall(path string, call Call) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	exitOnError(err)
	exitOnError(json.NewEncoder(file).Encode(call))
	exitOnError(file.Close())
}

func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
