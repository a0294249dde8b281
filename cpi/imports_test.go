package cpi

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Imports go one way: cmd → cpi → {kube, agentsettings, stemcell}.
var _ = Describe("Imports", func() {
	DescribeTable("of the packages below cpi know neither it nor each other",
		func(from string, never ...string) {
			out, err := exec.Command("go", "list", "-deps", "bosh-kubernetes-cpi/"+from+"/...").Output()
			Expect(err).NotTo(HaveOccurred())
			for _, name := range never {
				Expect(strings.Split(string(out), "\n")).NotTo(ContainElement(HavePrefix("bosh-kubernetes-cpi/" + name)))
			}
		},
		Entry("kube", "kube", "cpi", "agentsettings", "stemcell", "cmd", "test"),
		Entry("agentsettings", "agentsettings", "cpi", "kube", "stemcell", "cmd", "test", "k8s.io"),
		Entry("stemcell", "stemcell", "cpi", "kube", "agentsettings", "cmd", "test"),
		Entry("cpi", "cpi", "cmd", "test"),
	)

	It("of the program leave out what a call never needs and every call would pay for", func() {
		out, err := exec.Command("go", "list", "-deps", "bosh-kubernetes-cpi/cmd/cpi").Output()
		Expect(err).NotTo(HaveOccurred())
		linked := strings.Split(string(out), "\n")
		for _, name := range []string{"k8s.io/client-go/testing", "k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "github.com/google/gnostic-models", "text/template", "testing"} {
			Expect(linked).NotTo(ContainElement(Or(Equal(name), HavePrefix(name+"/"))))
		}
	})

	It("of the builders are free of clients", func() {
		out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, "bosh-kubernetes-cpi/kube/manifest").Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).NotTo(Or(ContainSubstring("client-go"), ContainSubstring("context"), ContainSubstring("\ntime")))
	})
})
