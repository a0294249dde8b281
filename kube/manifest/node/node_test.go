package node_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
var _ = DescribeTable("The program of a container's command has nothing that Kubernetes replaces in one",
	func(command []string) {
		for _, argument := range command {
			Expect(argument).NotTo(ContainSubstring("$$"), "Kubernetes makes one dollar sign of two")
			Expect(argument).NotTo(MatchRegexp(`\$\([A-Z_]+\)`), "Kubernetes replaces it by an environment variable")
		}
	},
	Entry("machine-start", node.VMStart()),
	Entry("hold", node.Attach()),
	Entry("hold-directory", node.AttachDirectory()),
	Entry("keep", node.Idle()),
	Entry("release", node.Release()),
	Entry("release-directory", node.ReleaseDirectory()),
	Entry("copy", node.Copy()),
	Entry("reboot", node.Reboot()),
	Entry("prepare", node.PrepareVolume()),
	Entry("probe", node.Probe()),
)
