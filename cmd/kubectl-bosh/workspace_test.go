package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// workspace is an operator's working directory for a new director, and a namespace that does not exist yet.
type workspace struct {
	dir        string
	namespace  string
	kubeconfig string // the operator's
}

var sha1Sum = strings.Repeat("1", 40)

const boshYML = "../../test/manifests/testdata/bosh.yml"

func newWorkspace() workspace {
	GinkgoHelper()
	testEnvs++
	ws := workspace{dir: GinkgoT().TempDir(), namespace: fmt.Sprintf("up-%d", testEnvs), kubeconfig: controlPlane.Kubeconfig("admin")}
	content, err := os.ReadFile(boshYML)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.MkdirAll(filepath.Join(ws.dir, "bosh-deployment", "runtime-configs"), 0o755)).To(Succeed())
	ws.write("bosh-deployment/bosh.yml", string(content))
	ws.write("cpi.tgz", "")
	ws.write("stemcell.tgz", "")
	return ws
}

func (ws workspace) path(name string) string { return filepath.Join(ws.dir, name) }

func (ws workspace) write(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(ws.path(name), []byte(content), 0o700)).To(Succeed())
}

func (ws workspace) read(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(ws.path(name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// vars returns the variables written by up.
func (ws workspace) vars() map[string]any {
	GinkgoHelper()
	var vars map[string]any
	Expect(yaml.Unmarshal([]byte(ws.read("kubernetes/vars.yml")), &vars)).To(Succeed())
	return vars
}

// run runs kubectl bosh in the directory with this input, and waits for it.
func (ws workspace) run(input string, args ...string) *gexec.Session {
	GinkgoHelper()
	session := ws.start(input, args...)
	Eventually(session).Should(gexec.Exit())
	return session
}

// start is like run, but does not wait.
func (ws workspace) start(input string, args ...string) *gexec.Session {
	GinkgoHelper()
	return ws.startWith(nil, input, args...)
}

// startWith is like start, with additional environment variables.
func (ws workspace) startWith(variables []string, input string, args ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(program, append([]string{args[0], "--kubeconfig", ws.kubeconfig}, args[1:]...)...)
	command.Dir, command.Env, command.Stdin = ws.dir, append(os.Environ(), variables...), strings.NewReader(input)
	return startCommand(command)
}

var firstRunArgs = []string{"up", "--bosh-deployment", "bosh-deployment", "--release", "cpi.tgz", "--stemcell", "stemcell.tgz", "--var", "releases=/releases"}

// planOutput runs up with --dry-run for a new director, and returns its output.
func (ws workspace) planOutput(extraArgs ...string) string {
	GinkgoHelper()
	session := ws.run("", append(append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--dry-run"), extraArgs...)...)
	Expect(session).To(gexec.Exit(0))
	return string(session.Out.Contents())
}

// interpolateManifest returns the manifest that create-env would read from the files in the directory.
func (ws workspace) interpolateManifest(ctx context.Context) map[string]any {
	GinkgoHelper()
	ws.write("kubernetes/cpi.kubeconfig", "of create-env")
	ws.write("kubernetes/director.kubeconfig", "of the director")
	var settings struct {
		OpsFiles []string `json:"ops_files"`
		Manifest string
	}
	Expect(yaml.Unmarshal([]byte(ws.read("kubernetes/up.yml")), &settings)).To(Succeed())
	args := []string{settings.Manifest, "--var", "releases=/releases", "--vars-file", "kubernetes/vars.yml", "--var-file", "kubeconfig=kubernetes/cpi.kubeconfig",
		"--var-file", "director_kubeconfig=kubernetes/director.kubeconfig"}
	for _, opsFile := range settings.OpsFiles {
		if !filepath.IsAbs(opsFile) {
			opsFile = "kubernetes/" + opsFile
		}
		args = append(args, "--ops-file", opsFile)
	}
	return ws.interpolate(ctx, args...)
}

func (ws workspace) interpolate(ctx context.Context, args ...string) map[string]any {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "bosh", append([]string{"--non-interactive", "interpolate"}, args...)...)
	command.Dir = ws.dir
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	var manifest map[string]any
	Expect(yaml.Unmarshal(out, &manifest)).To(Succeed())
	return manifest
}

// createNetworkPlugin creates the DaemonSet of a network plugin for up to detect, and deletes it at the end of the test.
func createNetworkPlugin(ctx context.Context, daemonSet string) {
	GinkgoHelper()
	Expect(controlPlane.Apply(ctx, fmt.Sprintf(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %[1]s, namespace: kube-system}, spec: {
		selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {nodeSelector: {none: such}, containers: [{name: a, image: i}]}}}}`, daemonSet))).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		_, err := controlPlane.Kubectl(ctx, "delete", "daemonset", daemonSet, "--namespace", "kube-system")
		Expect(err).NotTo(HaveOccurred())
	})
}

// createCalico creates the kinds of Calico that up inspects, and two IPPools: a general one, and a reserved one.
func createCalico(ctx context.Context) {
	GinkgoHelper()
	crd := func(kind, plural string) string {
		return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.crd.projectcalico.org}, spec: {
			group: crd.projectcalico.org, scope: Cluster, names: {kind: %[1]s, plural: %[2]s, singular: %[3]s}, versions: [{name: v1, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, kind, plural, strings.ToLower(kind))
	}
	Expect(controlPlane.Apply(ctx, crd("IPPool", "ippools")+"\n---\n"+crd("IPReservation", "ipreservations"))).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		_, err := controlPlane.Kubectl(ctx, "delete", "crd", "ippools.crd.projectcalico.org", "ipreservations.crd.projectcalico.org")
		Expect(err).NotTo(HaveOccurred())
	})
	Eventually(func() error { return controlPlane.Apply(ctx, calicoPools) }).WithContext(ctx).Should(Succeed())
}

const calicoPools = `{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: pods}, spec: {cidr: 10.1.0.0/17, nodeSelector: all()}}
---
{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: bosh}, spec: {cidr: 10.1.128.0/17, nodeSelector: "!all()"}}`

// createServiceWithAddress creates a Service with the address in the default namespace.
func createServiceWithAddress(ctx context.Context, address string) {
	GinkgoHelper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}
	_, err := cluster.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(cluster.CoreV1().Services("default").Delete(ctx, "other", metav1.DeleteOptions{})).To(Succeed())
	})
}

// createDNSService creates the Service of the cluster DNS.
func createDNSService(ctx context.Context) {
	GinkgoHelper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Labels: map[string]string{"k8s-app": "kube-dns"}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.246.0.10", Ports: []corev1.ServicePort{{Port: 53}}},
	}
	_, err := cluster.CoreV1().Services("kube-system").Create(ctx, service, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(cluster.CoreV1().Services("kube-system").Delete(ctx, "kube-dns", metav1.DeleteOptions{})).To(Succeed())
	})
}

// createEnv replaces the BOSH CLI: it records its arguments, interpolates the manifest with the real CLI, and writes or deletes the
// state. VMs in this cluster have no agents. test/e2e runs the real create-env. It is also the client of the director: it remembers configs.
const createEnv = `#!/bin/bash
set -euo pipefail
case $1 in
  interpolate | --version) exec bosh "$@" ;;
  configs) cat "$3.json" 2>/dev/null || echo '{"Tables":[{"Rows":[]}]}'; exit ;;
  update-cloud-config | update-runtime-config | upload-stemcell)
    BOSH_PROXY=${BOSH_ALL_PROXY:-}
    printf '%s ' "$BOSH_CLIENT:$BOSH_CLIENT_SECRET@$BOSH_ENVIRONMENT" "$BOSH_CA_CERT" "${BOSH_PROXY%:*}" "$@" >>director
    echo >>director
    [[ ! -e director-fails ]] || exit 3
    kind=${1#update-} kind=${kind%-config}
    echo '{"Tables":[{"Rows":[{"name":"default"}]}]}' >"$kind.json"
    exit ;;
esac
printf '%s\n' "${BOSH_ALL_PROXY:-}" "$@" >>calls
[[ ! -e fails ]] || exit 7
[[ ! -e waits ]] || echo $$ >cli.pid
while [[ -e waits ]]; do sleep 0.1; done
verb=$1 arguments=()
shift
while (($#)); do
  case $1 in
    --state) state=$2; shift ;;
    --vars-store) shift ;;
    --recreate) ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
bosh interpolate "${arguments[@]}" --var releases=/releases >manifest.yml
if [[ $verb == create-env ]]; then
  echo '{"director_id": "create-envs-own"}' >"$state"
  echo '{"admin_password": "swordfish", "director_ssl": {"ca": "CA"}}' >"$(dirname "$state")/creds.yml"
else
  rm "$state"
  [[ ! -e interrupted ]] || exit 130
fi
`

func newWorkspaceWithCLI() workspace {
	GinkgoHelper()
	ws := newWorkspace()
	ws.write("create-env", createEnv)
	return ws
}

// up runs up for a new director, with confirmation.
func (ws workspace) up(extraArgs ...string) *gexec.Session {
	GinkgoHelper()
	return ws.run("y\n", append(append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--bosh", "./create-env"), extraArgs...)...)
}

func (ws workspace) down(extraArgs ...string) *gexec.Session {
	GinkgoHelper()
	return ws.run("yes\n", append([]string{"down", "--bosh", "./create-env"}, extraArgs...)...)
}

// documentedRules returns the rules of the Role or the ClusterRole in manifests/rbac.yaml.
func documentedRules(kind string) []rbacv1.PolicyRule {
	GinkgoHelper()
	content, err := os.ReadFile("../../manifests/rbac.yaml")
	Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		if role.Kind == kind {
			return role.Rules
		}
	}
	return nil
}

// expectCPIWorks expects a call of the CPI with this kubeconfig to succeed.
func (ws workspace) expectCPIWorks(ctx context.Context, kubeconfig string) {
	GinkgoHelper()
	config := ws.path("cpi.json")
	Expect(director.WriteConfig(config, kubeconfig, ws.namespace, nil)).To(Succeed())
	response, err := (&director.Director{CPI: cpi, Config: config}).Call(ctx, "has_vm", "agent-none")
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil())
}

func (ws workspace) expectDeleted(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() bool {
		_, err := cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue())
	_, err := cluster.RbacV1().ClusterRoles().Get(ctx, "bosh-cpi-"+ws.namespace, metav1.GetOptions{})
	Expect(apierrors.IsNotFound(err)).To(BeTrue())
	_, err = cluster.RbacV1().ClusterRoleBindings().Get(ctx, "bosh-cpi-"+ws.namespace, metav1.GetOptions{})
	Expect(apierrors.IsNotFound(err)).To(BeTrue())
}

// writeImages writes a light stemcell, and a release with the image of bosh-node.
func (ws workspace) writeImages(ctx context.Context) {
	GinkgoHelper()
	index := `{"manifests": [{"annotations": {"io.containerd.image.name": "` + director.NodeImage + `"}}]}`
	Expect(embedded.Run(ctx, "bash", "-euc", `cd "$1" && mkdir -p kubernetes_cpi/node-image packages && echo "$2" >kubernetes_cpi/node-image/index.json
		tar -czf packages/kubernetes_cpi.tgz ./kubernetes_cpi && tar -czf cpi.tgz ./packages`, "bash", ws.dir, index)).To(BeEmpty())
	properties := stemcell.Properties{ImageReference: "registry.example.com/stemcell", Digest: "sha256:" + strings.Repeat("0", 64)}
	Expect(stemcell.Manifest{Name: "s", Version: "1", OperatingSystem: "ubuntu-noble", APIVersion: 3, CloudProperties: properties}.
		WriteLight(ws.path("stemcell.tgz"))).To(Succeed())
}

// createProbe creates a Pod in the namespace as a deep check does, which deletes it unless it is killed.
func (ws workspace) createProbe(ctx context.Context) {
	GinkgoHelper()
	labels := map[string]string{"bosh-director": "preflight"}
	probe := manifest.NodeProbePod(manifest.VM{Name: "agent-preflight-1", Namespace: ws.namespace, Director: preflight.ProbeDirector, Image: "i",
		NodeImage: director.NodeImage, Labels: labels}, "n")
	_, err := cluster.CoreV1().Pods(ws.namespace).Create(ctx, probe.Pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}
