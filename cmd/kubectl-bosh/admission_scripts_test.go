package main_test

import (
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("kubectl bosh admission-scripts", func() {
	It("prints the ConfigMap with the programs of this release, without a cluster", func() {
		session := startCommand(exec.Command(program, "--kubeconfig", "/does/not/exist", "admission-scripts"))
		Eventually(session).Should(gexec.Exit(0))
		var printed corev1.ConfigMap
		Expect(yaml.UnmarshalStrict(session.Out.Contents(), &printed)).To(Succeed())
		Expect(&printed).To(Equal(manifest.AdmissionScripts()))
	})
})
