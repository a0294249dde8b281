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

	tarballs "bosh-kubernetes-cpi/test/stemcells"
)

// machine is what create-env has made of the director's VM in the cluster.
type machine struct {
	pod      corev1.Pod
	services map[string]corev1.ServiceSpec
	settings map[string]any
}

var _ = Describe("bosh create-env", func() {
	AfterEach(emptyNamespace)

	// The real CLI checks the whole manifest, renders and installs the CPI, and calls it; then it waits for an agent, which a simulated
	// machine does not have.
	for i, way := range ways {
		account := accounts[i%2]
		It("makes the director's machine: "+way.name+", "+account.name, func(ctx context.Context) {
			wanted := director(way, account, users[1])
			made := createEnv(ctx, wanted)
			expectReachable(made, wanted)
			Expect(made.settings["mbus"]).To(HaveSuffix("@0.0.0.0:6868"))
			Expect(at(made.settings, "env", "bosh", "mbus", "cert")).To(HaveKey("private_key"))
			Expect(at(made.settings, "networks", "default")).NotTo(HaveKey("dns"), "the machine keeps its Pod's name servers")
			Expect(made.pod.Spec.Containers[0].Resources.Requests.Memory().String()).To(Equal("4Gi"))
			if account.name == "in-cluster.yml" {
				Expect(made.pod.Spec.ServiceAccountName).To(Equal("bosh-cpi"))
				Expect(*made.pod.Spec.AutomountServiceAccountToken).To(BeTrue())
			}
		}, NodeTimeout(longTest))
	}
})

// expectReachable checks the machine's address and Services.
func expectReachable(made machine, wanted template) {
	GinkgoHelper()
	ip := wanted.value("internal_ip").(string)
	if service, fronted := made.services["bosh-director"]; fronted {
		Expect(service.ClusterIP).To(Equal(ip))
		Expect(portsOf(service)).To(Equal([]int32{22, 4222, 6868, 8443, 8844, 25250, 25555}))
		Expect(at(made.settings, "networks", "default", "type")).To(Equal("dynamic"))
	} else {
		Expect(made.pod.Status.PodIP).To(Equal(ip))
	}
	expected, types := map[string]corev1.ServiceType{}, map[string]corev1.ServiceType{}
	for _, each := range []struct {
		file, service string
		kind          corev1.ServiceType
	}{
		{"service.yml", "bosh-director", corev1.ServiceTypeClusterIP},
		{"nodeport.yml", "bosh-director-nodes", corev1.ServiceTypeNodePort},
		{"vip.yml", "vip-203-0-113-7", corev1.ServiceTypeLoadBalancer},
	} {
		if slices.Contains(wanted.ops, own(each.file)) {
			expected[each.service] = each.kind
		}
	}
	for name, service := range made.services {
		types[name] = service.Type
	}
	Expect(types).To(Equal(expected))
	if service, ok := made.services["bosh-director-nodes"]; ok {
		Expect(service.Ports).To(ContainElement(And(HaveField("Port", int32(6868)), HaveField("NodePort", int32(30868)))))
	}
	if slices.Contains(wanted.ops, own("external.yml")) {
		Expect(made.pod.Labels).To(HaveKeyWithValue("bosh-director", values["director_name"]))
	}
}

func portsOf(service corev1.ServiceSpec) []int32 {
	var ports []int32
	for _, port := range service.Ports {
		ports = append(ports, port.Port)
	}
	return ports
}

// createEnv runs the real command until the CPI has made the machine.
func createEnv(ctx context.Context, wanted template) machine {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	wanted.storeCredentials(ctx, folder)
	arguments := []string{"--non-interactive", "create-env", "--state", filepath.Join(folder, "state.json")}
	command := exec.Command("bosh", append(arguments, wanted.arguments(folder)...)...)
	// It is not to look for an agent beyond this machine.
	command.Env = append(os.Environ(), "HOME="+folder, "BOSH_ALL_PROXY=socks5://127.0.0.1:1")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output := gbytes.NewBuffer()
	command.Stdout, command.Stderr = output, output
	Expect(command.Start()).To(Succeed())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	DeferCleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		Eventually(ended).Should(BeClosed())
	})
	Eventually(func() (bool, error) {
		select {
		case <-ended:
			return false, StopTrying("create-env ended: " + string(output.Contents()))
		default:
			return metadataSet(ctx)
		}
	}).WithContext(ctx).Should(BeTrue())
	return found(ctx)
}

// metadataSet reports whether the machine's metadata is there, which create-env sets right after create_vm.
func metadataSet(ctx context.Context) (bool, error) {
	pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/job=bosh"})
	return err == nil && len(pods.Items) == 1, err
}

func found(ctx context.Context) machine {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).To(HaveLen(1))
	made := machine{pod: pods.Items[0], services: map[string]corev1.ServiceSpec{}}
	services, err := cluster.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, service := range services.Items {
		made.services[service.Name] = service.Spec
	}
	secret, err := cluster.CoreV1().Secrets(namespace).Get(ctx, made.pod.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(secret.Data["settings.json"], &made.settings)).To(Succeed())
	return made
}

// makeReleases makes the releases and the stemcell that the manifests name. Those of other projects have jobs without content;
// the CPI's has its own job, and its program as it is.
func makeReleases(ctx context.Context) {
	GinkgoHelper()
	releases := filepath.Join(dir, "releases")
	for name, jobs := range map[string][]string{
		"bosh": {"nats", "postgres", "blobstore", "director", "health_monitor"},
		"bpm":  {"bpm"}, "uaa": {"uaa"}, "credhub": {"credhub"}, "os-conf": {"user_add"},
	} {
		source := filepath.Join(dir, "sources", name)
		for _, each := range jobs {
			write(source, "jobs/"+each+"/spec", "{name: "+each+", templates: {}, packages: []}")
			write(source, "jobs/"+each+"/monit", "")
		}
		createRelease(ctx, name, source, filepath.Join(releases, name+".tgz"))
	}
	source := filepath.Join(dir, "sources", "bosh-kubernetes-cpi")
	Expect(os.CopyFS(filepath.Join(source, "jobs/kubernetes_cpi"), os.DirFS(job))).To(Succeed())
	write(source, "packages/kubernetes_cpi/spec", "{name: kubernetes_cpi, files: [kubernetes_cpi/cpi]}")
	write(source, "packages/kubernetes_cpi/packaging", "set -e\ninstall -D -m 0755 kubernetes_cpi/cpi $BOSH_INSTALL_TARGET/bin/cpi\n")
	Expect(os.MkdirAll(filepath.Join(source, "src/kubernetes_cpi"), 0o755)).To(Succeed())
	Expect(os.Link(program, filepath.Join(source, "src/kubernetes_cpi/cpi"))).To(Succeed())
	createRelease(ctx, "bosh-kubernetes-cpi", source, filepath.Join(releases, "bosh-kubernetes-cpi.tgz"))
	// No registry answers there: whether an image exists is the nodes' to find out.
	tarballs.Tarball(filepath.Join(releases, "stemcell.tgz"), nil, map[string]string{
		"stemcell_formats": "[docker-light]",
		"cloud_properties": "{image_reference: '127.0.0.1:1/stemcell', digest: 'sha256:" + strings.Repeat("0", 64) + "'}",
	})
	values["releases"] = releases
	values["kubernetes_cpi_url"] = "file://" + filepath.Join(releases, "bosh-kubernetes-cpi.tgz")
	values["stemcell_url"] = "file://" + filepath.Join(releases, "stemcell.tgz")
}

func createRelease(ctx context.Context, name, source, tarball string) {
	GinkgoHelper()
	write(source, "config/final.yml", "name: "+name)
	write(source, "config/blobs.yml", "{}")
	Expect(os.MkdirAll(filepath.Dir(tarball), 0o755)).To(Succeed())
	bosh(ctx, "create-release", "--force", "--dir", source, "--version", "1", "--tarball", tarball)
}

func write(folder, name, content string) {
	GinkgoHelper()
	path := filepath.Join(folder, name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
}
