package node_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A machine with a service account's token", func() {
	const kept = "etc/bosh-kubernetes-cpi/api-server"
	var w world
	BeforeEach(func() {
		w = newWorld()
		w.write("var/run/secrets/kubernetes.io/serviceaccount/token", "token")
	})

	boots := func(host, port string) {
		GinkgoHelper()
		status, said := w.call("files api-server", "keep_api_server", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
		Expect(status).To(BeZero(), said)
	}

	It("keeps at each boot where the API server is, for all to read", func() {
		boots("10.96.0.1", "443")
		Expect(w.read(kept)).To(Equal("https://10.96.0.1:443\n"))
		boots("fd00::1", "6443")
		Expect(w.read(kept)).To(Equal("https://[fd00::1]:6443\n"))
		info, err := os.Stat(w.path(kept))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o644))
	})

	It("keeps nothing that it is not told, and nothing of a former boot", func() {
		boots("10.96.0.1", "443")
		boots("", "443")
		Expect(w.exists(kept)).To(BeFalse())
	})

	It("is the only kind that keeps it", func() {
		w.remove("var/run/secrets")
		boots("10.96.0.1", "443")
		Expect(w.exists(kept)).To(BeFalse())
	})
})
