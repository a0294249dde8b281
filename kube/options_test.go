package kube

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The API server of a Pod's own service account", func() {
	writeURLFile := func(content string) string {
		GinkgoHelper()
		path := filepath.Join(GinkgoT().TempDir(), "api-server")
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}

	It("is the one that the kubelet names", func() {
		Expect(apiServerURL("10.96.0.1", "443", writeURLFile("https://10.96.0.2:443\n"))).To(Equal("https://10.96.0.1:443"))
		Expect(apiServerURL("fd00::1", "443", "")).To(Equal("https://[fd00::1]:443"))
	})

	It("is, without an environment, the one that the machine has kept at its boot", func() {
		Expect(apiServerURL("", "", writeURLFile("https://[fd00::1]:6443\n"))).To(Equal("https://[fd00::1]:6443"))
	})

	It("is called by its name where nothing was kept", func() {
		Expect(apiServerURL("", "", filepath.Join(GinkgoT().TempDir(), "api-server"))).To(Equal("https://kubernetes.default.svc:443"))
	})

	It("is an error where what was kept cannot be read", func() {
		_, err := apiServerURL("", "", GinkgoT().TempDir())
		Expect(err).To(MatchError(ContainSubstring("set kubernetes.kubeconfig")))
	})
})
