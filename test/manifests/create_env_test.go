package manifests

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tarballs "bosh-kubernetes-cpi/test/harness/stemcells"
)

// directorVM contains the objects of a director's VM created by create-env.
type directorVM struct {
	pod      corev1.Pod
	services map[string]corev1.ServiceSpec
	settings map[string]any
}

var _ = Describe("bosh create-env", func() {
	AfterEach(emptyNamespace)

	// The real BOSH CLI validates the manifest, renders and installs the CPI, and calls it. Then it waits for an agent in vain, because
	// a simulated VM does not have one.
	for i, network := range networkOptions {
		account := accountOptions[i%2]
		It("creates the director's VM: "+network.name+", "+account.name, func(ctx context.Context) {
			manifest := directorManifest(network, account, userOptions[1])
			created := createEnv(ctx, manifest)
			expectReachable(created, manifest)
			Expect(created.settings["mbus"]).To(HaveSuffix("@0.0.0.0:6868"))
			Expect(lookup(created.settings, "env", "bosh", "mbus", "cert")).To(HaveKey("private_key"))
			Expect(lookup(created.settings, "networks", "default")).NotTo(HaveKey("dns"), "the VM keeps its Pod's name servers")
			Expect(created.pod.Spec.Containers[0].Resources.Requests.Memory().String()).To(Equal("4Gi"))
			if account.name == "in-cluster.yml" {
				Expect(created.pod.Spec.ServiceAccountName).To(Equal("bosh-cpi"))
				Expect(*created.pod.Spec.AutomountServiceAccountToken).To(BeTrue())
			}
		}, NodeTimeout(longTest))
	}
})

// expectReachable expects that the VM has the address and the Services of the manifest.
func expectReachable(created directorVM, manifest template) {
	GinkgoHelper()
	ip := manifest.valueOf("internal_ip").(string)
	if service, ok := created.services["bosh-director"]; ok {
		Expect(service.ClusterIP).To(Equal(ip))
		Expect(portsOf(service)).To(Equal([]int32{22, 4222, 6868, 8443, 8844, 25250, 25555}))
		Expect(lookup(created.settings, "networks", "default", "type")).To(Equal("dynamic"))
	} else {
		Expect(created.pod.Status.PodIP).To(Equal(ip))
	}
	expectedTypes, types := map[string]corev1.ServiceType{}, map[string]corev1.ServiceType{}
	for _, exposed := range []struct {
		file, service string
		serviceType   corev1.ServiceType
	}{
		{"service.yml", "bosh-director", corev1.ServiceTypeClusterIP},
		{"nodeport.yml", "bosh-director-nodes", corev1.ServiceTypeNodePort},
		{"vip.yml", "vip-203-0-113-7", corev1.ServiceTypeLoadBalancer},
	} {
		if slices.Contains(manifest.ops, manifestPath(exposed.file)) {
			expectedTypes[exposed.service] = exposed.serviceType
		}
	}
	for name, service := range created.services {
		types[name] = service.Type
	}
	Expect(types).To(Equal(expectedTypes))
	if service, ok := created.services["bosh-director-nodes"]; ok {
		Expect(service.Ports).To(ContainElement(And(HaveField("Port", int32(6868)), HaveField("NodePort", int32(30868)))))
	}
	if slices.Contains(manifest.ops, manifestPath("external.yml")) {
		Expect(created.pod.Labels).To(HaveKeyWithValue("bosh-director", variableValues["director_name"]))
	}
}

// portsOf returns the ports of a Service.
func portsOf(service corev1.ServiceSpec) []int32 {
	var ports []int32
	for _, port := range service.Ports {
		ports = append(ports, port.Port)
	}
	return ports
}

// createEnv runs `bosh create-env`, and waits until create_vm is complete.
func createEnv(ctx context.Context, manifest template) directorVM {
	GinkgoHelper()
	stateDir := GinkgoT().TempDir()
	manifest.storeCredentials(ctx, stateDir)
	arguments := []string{"--non-interactive", "create-env", "--state", filepath.Join(stateDir, "state.json")}
	command := exec.Command("bosh", append(arguments, manifest.arguments(stateDir)...)...)
	// The proxy does not exist, so that create-env cannot connect to another agent.
	command.Env = append(os.Environ(), "HOME="+stateDir, "BOSH_ALL_PROXY=socks5://127.0.0.1:1")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output := gbytes.NewBuffer()
	command.Stdout, command.Stderr = output, output
	Expect(command.Start()).To(Succeed())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = command.Wait()
	}()
	DeferCleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		Eventually(done).Should(BeClosed())
	})
	Eventually(func() (bool, error) {
		select {
		case <-done:
			return false, StopTrying("create-env failed: " + string(output.Contents()))
		default:
			return hasMetadata(ctx)
		}
	}).WithContext(ctx).Should(BeTrue())
	return readDirectorVM(ctx)
}

// hasMetadata reports whether the VM has the metadata that create-env sets after create_vm.
func hasMetadata(ctx context.Context) (bool, error) {
	pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/job=bosh"})
	return err == nil && len(pods.Items) == 1, err
}

// readDirectorVM reads the objects of the only VM.
func readDirectorVM(ctx context.Context) directorVM {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).To(HaveLen(1))
	created := directorVM{pod: pods.Items[0], services: map[string]corev1.ServiceSpec{}}
	services, err := cluster.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, service := range services.Items {
		created.services[service.Name] = service.Spec
	}
	secret, err := cluster.CoreV1().Secrets(namespace).Get(ctx, created.pod.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(secret.Data["settings.json"], &created.settings)).To(Succeed())
	return created
}

// createReleases creates the releases and the stemcell of the manifests. The jobs of other projects are empty. The CPI's release
// contains its real job and program.
func createReleases(ctx context.Context) {
	GinkgoHelper()
	releases := filepath.Join(suiteDir, "releases")
	for name, jobs := range map[string][]string{
		"bosh": {"nats", "postgres", "blobstore", "director", "health_monitor"},
		"bpm":  {"bpm"}, "uaa": {"uaa"}, "credhub": {"credhub"}, "os-conf": {"user_add"},
	} {
		source := filepath.Join(suiteDir, "sources", name)
		for _, job := range jobs {
			writeFile(source, "jobs/"+job+"/spec", "{name: "+job+", templates: {}, packages: []}")
			writeFile(source, "jobs/"+job+"/monit", "")
		}
		createRelease(ctx, name, source, filepath.Join(releases, name+".tgz"))
	}
	source := filepath.Join(suiteDir, "sources", "bosh-kubernetes-cpi")
	Expect(os.CopyFS(filepath.Join(source, "jobs/kubernetes_cpi"), os.DirFS(jobDir))).To(Succeed())
	writeFile(source, "packages/kubernetes_cpi/spec", "{name: kubernetes_cpi, files: [kubernetes_cpi/cpi, kubernetes_cpi/node-image/**/*]}")
	writeFile(source, "packages/kubernetes_cpi/packaging", "set -e\ninstall -D -m 0755 kubernetes_cpi/cpi $BOSH_INSTALL_TARGET/bin/cpi\n"+
		"cp -R kubernetes_cpi/node-image $BOSH_INSTALL_TARGET/\n")
	Expect(os.MkdirAll(filepath.Join(source, "src/kubernetes_cpi"), 0o755)).To(Succeed())
	Expect(os.Link(program, filepath.Join(source, "src/kubernetes_cpi/cpi"))).To(Succeed())
	Expect(os.CopyFS(filepath.Join(source, "src/kubernetes_cpi/node-image"), os.DirFS(nodeImage))).To(Succeed())
	createRelease(ctx, "bosh-kubernetes-cpi", source, filepath.Join(releases, "bosh-kubernetes-cpi.tgz"))
	// No registry listens on this address, because only nodes would access the image.
	tarballs.Tarball(filepath.Join(releases, "stemcell.tgz"), nil, map[string]string{
		"stemcell_formats": "[docker-light]",
		"cloud_properties": "{image_reference: '127.0.0.1:1/stemcell', digest: 'sha256:" + strings.Repeat("0", 64) + "'}",
	})
	variableValues["releases"] = releases
	variableValues["kubernetes_cpi_url"] = "file://" + filepath.Join(releases, "bosh-kubernetes-cpi.tgz")
	variableValues["stemcell_url"] = "file://" + filepath.Join(releases, "stemcell.tgz")
}

// createRelease creates the tarball of a release with the BOSH CLI.
func createRelease(ctx context.Context, name, source, tarball string) {
	GinkgoHelper()
	writeFile(source, "config/final.yml", "name: "+name)
	writeFile(source, "config/blobs.yml", "{}")
	Expect(os.MkdirAll(filepath.Dir(tarball), 0o755)).To(Succeed())
	bosh(ctx, "create-release", "--force", "--dir", source, "--version", "1", "--tarball", tarball)
}

func writeFile(dir, name, content string) {
	GinkgoHelper()
	path := filepath.Join(dir, name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
}
