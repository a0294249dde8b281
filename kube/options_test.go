package kube

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The connection settings", func() {
	DescribeTable("reject a namespace that cannot exist:", func(namespace string) {
		Expect(Options{Namespace: namespace}.Validate()).To(MatchError(ContainSubstring("kubernetes.namespace %q is not valid; use", namespace)))
	}, Entry(nil, "Default"), Entry(nil, "a/b"), Entry(nil, "a "))

	newClient := func(server string, variables map[string]string) error {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"} {
			GinkgoT().Setenv(name, variables[name])
		}
		_, err := New(Options{Kubeconfig: kubeconfigWith("server: '"+server+"'", "")}, "test", 0)
		return err
	}

	DescribeTable("reject a proxy of the environment that would be ignored, without its password:", func(name, value string) {
		Expect(newClient("https://10.0.0.1", map[string]string{name: value})).
			To(MatchError(And(ContainSubstring("environment variable HTTPS_PROXY "), Not(ContainSubstring("s3cret")))))
	},
		Entry("% in the password", "https_proxy", "http://user:%s3cret@proxy.test:3128"),
		Entry("# in the password", "HTTPS_PROXY", "http://user:#s3cret@proxy.test:3128"),
		Entry("/ in the password", "HTTPS_PROXY", "http://user:s3cret/@proxy.test:3128"),
		Entry("a path", "https_proxy", "http://proxy.test:3128/s3cret"),
	)

	DescribeTable("accept a proxy of the environment:", func(server string, variables map[string]string) {
		Expect(newClient(server, variables)).To(Succeed())
	},
		Entry("without a scheme", "https://10.0.0.1", map[string]string{"HTTPS_PROXY": "proxy.test:3128"}),
		Entry("with an encoded password", "https://10.0.0.1", map[string]string{"HTTPS_PROXY": "http://user:%40@proxy.test:3128/"}),
		Entry("of type SOCKS", "https://10.0.0.1", map[string]string{"https_proxy": "socks5://127.0.0.1:1080"}),
		Entry("that does not apply to the server", "https://10.0.0.1", map[string]string{"HTTPS_PROXY": "http://:#", "NO_PROXY": "10.0.0.0/8"}),
		Entry("for the other scheme", "https://10.0.0.1", map[string]string{"HTTP_PROXY": "http://:#"}),
	)

	DescribeTable("reject files that are not PEM:", func(cluster, user, message string) {
		path := filepath.Join(GinkgoT().TempDir(), "file")
		Expect(os.WriteFile(path, []byte("text"), 0o600)).To(Succeed())
		_, err := New(Options{Kubeconfig: kubeconfigWith("server: 'https://10.0.0.1'"+strings.ReplaceAll(cluster, "FILE", path), strings.ReplaceAll(user, "FILE", path))}, "test", 0)
		Expect(err).To(MatchError(And(HavePrefix("kubernetes.kubeconfig: "), ContainSubstring(message))))
	},
		Entry("an authority", ", certificate-authority: FILE", "", "has no certificates in PEM format"),
		Entry("a certificate and a key", "", "client-certificate: FILE, client-key: FILE", " are not a certificate and its key"),
	)
})

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
