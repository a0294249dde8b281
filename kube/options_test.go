package kube

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The API server's URL with a Pod's service account", func() {
	writeURLFile := func(content string) string {
		GinkgoHelper()
		path := filepath.Join(GinkgoT().TempDir(), "api-server")
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}

	It("is from the environment variables that the kubelet sets", func() {
		Expect(apiServerURL("10.96.0.1", "443", writeURLFile("https://10.96.0.2:443\n"))).To(Equal("https://10.96.0.1:443"))
		Expect(apiServerURL("fd00::1", "443", "")).To(Equal("https://[fd00::1]:443"))
	})

	It("is from the file if the environment variables are not set", func() {
		Expect(apiServerURL("", "", writeURLFile("https://[fd00::1]:6443\n"))).To(Equal("https://[fd00::1]:6443"))
	})

	It("has the DNS name if there is no file either", func() {
		Expect(apiServerURL("", "", filepath.Join(GinkgoT().TempDir(), "api-server"))).To(Equal("https://kubernetes.default.svc:443"))
	})

	It("is an error if the file cannot be read", func() {
		_, err := apiServerURL("", "", GinkgoT().TempDir())
		Expect(err).To(MatchError(ContainSubstring("set kubernetes.kubeconfig")))
	})
})
