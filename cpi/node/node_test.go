package node_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var commands = []TableEntry{
	Entry("vm-start", node.VMStart()),
	Entry("vm-stop", node.VMStop()),
	Entry("attach", node.Attach()),
	Entry("idle", node.Idle()),
	Entry("exclusivity-check", node.ExclusivityCheck()),
	Entry("reboot", node.Reboot()),
	Entry("prepare", node.PrepareVolume()),
	Entry("probe", node.Probe()),
}

// https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
var _ = DescribeTable("The command of a container contains nothing that Kubernetes expands", func(command []string) {
	for _, argument := range command {
		Expect(argument).NotTo(ContainSubstring("$$"), "Kubernetes replaces two dollar signs by one")
		Expect(argument).NotTo(MatchRegexp(`\$\([A-Z_]+\)`), "Kubernetes replaces this by the value of an environment variable")
	}
}, commands)

var _ = DescribeTable("The command of a container contains no comments, empty lines and indentation, which etcd would store", func(command []string) {
	Expect(command[2]).NotTo(MatchRegexp(`(?m)^[ #\n]`))
}, commands)
