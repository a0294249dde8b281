package stemcell_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"bosh-kubernetes-cpi/test/harness/stemcells"
)

var _ = Describe("A CPI process that is killed during an upload", func() {
	It("leaves no incomplete image and does not affect the next attempt", func() {
		program, err := gexec.Build("bosh-kubernetes-cpi/cmd/cpi")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(gexec.CleanupBuildArtifacts)
		registry := startRegistry(false)
		image := writeTempFile(stemcells.Jammy.Image())
		config := filepath.Join(GinkgoT().TempDir(), "cpi.json")
		Expect(os.WriteFile(config, fmt.Appendf(nil,
			`{"agent": {"mbus": "nats://nats.test:4222"}, "kubernetes": {"stemcell": {"registry": {"repository": "%s/stemcells", "insecure": true}}}}`,
			registry.Host()), 0o600)).To(Succeed())
		start := func() *gexec.Session {
			command := exec.Command(program, "-configPath", config)
			command.Stdin = strings.NewReader(fmt.Sprintf(
				`{"method": "create_stemcell", "arguments": [%q, {"name": "jammy", "version": "1"}], "context": {}, "api_version": 2}`, image))
			session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
			Expect(err).NotTo(HaveOccurred())
			return session
		}

		halfway, killed := make(chan struct{}), make(chan struct{})
		registry.SetFault(func(_ http.ResponseWriter, request *http.Request) bool {
			if request.Method != http.MethodPatch {
				return false
			}
			_, _ = io.CopyN(io.Discard, request.Body, request.ContentLength/2)
			close(halfway)
			<-killed
			panic(http.ErrAbortHandler)
		})
		session := start()
		Eventually(halfway).Should(BeClosed())
		session.Kill().Wait("10s")
		close(killed)
		Expect(registry.CountManifests()).To(BeZero())
		Expect(registry.UploadCounts()).To(BeEmpty())

		registry.SetFault(nil)
		Eventually(start()).Should(And(gexec.Exit(0), gbytes.Say(`"result":"heavy://`)))
		Expect(registry.UploadCounts()).To(And(HaveLen(2), HaveEach(1)))
	})
})
