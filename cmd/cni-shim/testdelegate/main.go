// Command testdelegate is the CNI plugin that the shim's tests call: it notes how it was called, and
// does what its configuration's "test" says. It takes addresses by every convention.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Call is what it notes of a call, as a line of JSON.
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
		Record  string   `json:"record"`  // the file to note calls in
		Give    []string `json:"give"`    // addresses to give, whatever was asked for
		Print   string   `json:"print"`   // what to print instead of a result
		Fail    []string `json:"fail"`    // commands at which to fail with an error document
		Crash   []string `json:"crash"`   // commands at which to fail without one
		Stderr  string   `json:"stderr"`  // what to log
		Without bool     `json:"without"` // give no address unless one was asked for
	} `json:"test"`
}

func main() {
	stdin, err := io.ReadAll(os.Stdin)
	check(err)
	var c config
	check(json.Unmarshal(stdin, &c))
	command := os.Getenv("CNI_COMMAND")
	note(c.Test.Record, Call{
		command, os.Getenv("CNI_ARGS"), os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_NETNS"), os.Getenv("CNI_IFNAME"), stdin,
	})
	fmt.Fprint(os.Stderr, c.Test.Stderr)
	switch {
	case has(c.Test.Crash, command):
		os.Exit(2)
	case has(c.Test.Fail, command):
		fmt.Fprintf(os.Stdout, `{"cniVersion":%q,"code":117,"msg":"the delegate cannot %s","details":"for a test"}`, c.CNIVersion, command)
		os.Exit(1)
	case c.Test.Print != "":
		fmt.Fprint(os.Stdout, c.Test.Print)
	case command == "ADD":
		check(json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": c.CNIVersion, "ips": ips(c), "unknown": "kept"}))
	}
}

// ips prefers what was asked for in the order in which host-local and static do.
func ips(c config) []map[string]string {
	var asked []string
	for pair := range strings.SplitSeq(os.Getenv("CNI_ARGS"), ";") {
		if ip, found := strings.CutPrefix(pair, "IP="); found {
			asked = []string{ip}
		}
	}
	for _, more := range [][]string{c.Args.CNI.IPs, c.RuntimeConfig.IPs, c.Test.Give} {
		if len(more) > 0 {
			asked = more
		}
	}
	if len(asked) == 0 && !c.Test.Without {
		asked = []string{"10.9.9.9/24"}
	}
	all := []map[string]string{}
	for _, ip := range asked {
		switch {
		case strings.Contains(ip, "/"):
		case strings.Contains(ip, ":"):
			ip += "/64"
		default:
			ip += "/24"
		}
		all = append(all, map[string]string{"address": ip, "version": map[bool]string{true: "6", false: "4"}[strings.Contains(ip, ":")]})
	}
	return all
}

func has(list []string, command string) bool {
	return slices.Contains(list, command)
}

func note(path string, call Call) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(err)
	check(json.NewEncoder(file).Encode(call))
	check(file.Close())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
