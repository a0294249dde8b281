package node_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The URL of the API server", func() {
	const urlFile = "etc/bosh-kubernetes-cpi/api-server"
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.write("var/run/secrets/kubernetes.io/serviceaccount/token", "token")
	})

	saveURL := func(host, port string) {
		GinkgoHelper()
		status, output := root.callFunction("files api-server", "save_api_server_url",
			"KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
		Expect(status).To(BeZero(), output)
	}

	It("is saved at each start of the VM, in a file that all users can read", func() {
		saveURL("10.96.0.1", "443")
		Expect(root.read(urlFile)).To(Equal("https://10.96.0.1:443\n"))
		saveURL("fd00::1", "6443")
		Expect(root.read(urlFile)).To(Equal("https://[fd00::1]:6443\n"))
		info, err := os.Stat(root.path(urlFile))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o644))
	})

	It("is removed if the Pod has no address of the API server", func() {
		saveURL("10.96.0.1", "443")
		saveURL("", "443")
		Expect(root.exists(urlFile)).To(BeFalse())
	})

	It("is removed if the VM has no service account token", func() {
		root.remove("var/run/secrets")
		saveURL("10.96.0.1", "443")
		Expect(root.exists(urlFile)).To(BeFalse())
	})
})
