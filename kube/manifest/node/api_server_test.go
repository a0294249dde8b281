package node_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A machine with a service account's token", func() {
	const urlFile = "etc/bosh-kubernetes-cpi/api-server"
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.write("var/run/secrets/kubernetes.io/serviceaccount/token", "token")
	})

	saveURL := func(host, port string) {
		GinkgoHelper()
		status, output := w.callFunction("files api-server", "keep_api_server", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
		Expect(status).To(BeZero(), output)
	}

	It("keeps at each boot where the API server is, for all to read", func() {
		saveURL("10.96.0.1", "443")
		Expect(w.read(urlFile)).To(Equal("https://10.96.0.1:443\n"))
		saveURL("fd00::1", "6443")
		Expect(w.read(urlFile)).To(Equal("https://[fd00::1]:6443\n"))
		info, err := os.Stat(w.path(urlFile))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o644))
	})

	It("keeps nothing that it is not told, and nothing of a former boot", func() {
		saveURL("10.96.0.1", "443")
		saveURL("", "443")
		Expect(w.exists(urlFile)).To(BeFalse())
	})

	It("is the only kind that keeps it", func() {
		w.remove("var/run/secrets")
		saveURL("10.96.0.1", "443")
		Expect(w.exists(urlFile)).To(BeFalse())
	})
})
