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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ground is a folder where an operator works who wants a director, and a namespace that is not there yet.
type ground struct {
	folder    string
	namespace string
	as        string // a kubeconfig
}

const boshYML = "../../test/manifests/testdata/bosh.yml"

func newGround() ground {
	GinkgoHelper()
	worlds++
	g := ground{folder: GinkgoT().TempDir(), namespace: fmt.Sprintf("up-%d", worlds), as: plane.Kubeconfig("admin")}
	content, err := os.ReadFile(boshYML)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.MkdirAll(filepath.Join(g.folder, "bosh-deployment"), 0o755)).To(Succeed())
	g.write("bosh-deployment/bosh.yml", string(content))
	return g
}

func (g ground) path(name string) string { return filepath.Join(g.folder, name) }

func (g ground) write(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(g.path(name), []byte(content), 0o700)).To(Succeed())
}

func (g ground) read(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(g.path(name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// vars are the variables that up has written for the manifest.
func (g ground) vars() map[string]any {
	GinkgoHelper()
	var vars map[string]any
	Expect(yaml.Unmarshal([]byte(g.read("kubernetes/vars.yml")), &vars)).To(Succeed())
	return vars
}

// run runs kubectl bosh in the folder, to its end, with an answer to what it asks.
func (g ground) run(answer string, args ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(program, append([]string{args[0], "--kubeconfig", g.as}, args[1:]...)...)
	command.Dir = g.folder
	command.Stdin = strings.NewReader(answer)
	session := start(command)
	Eventually(session).Should(gexec.Exit())
	return session
}

var first = []string{"up", "--bosh-deployment", "bosh-deployment", "--release", "cpi.tgz", "--stemcell", "stemcell.tgz"}

// plans runs up for the first time up to the point where it would change something, and returns what it prints.
func (g ground) plans(more ...string) string {
	GinkgoHelper()
	session := g.run("", append(append(append([]string{}, first...), "--namespace", g.namespace, "--dry-run"), more...)...)
	Expect(session).To(gexec.Exit(0))
	return string(session.Out.Contents())
}

// interpolated is the manifest that the BOSH CLI makes of the folder's files, as create-env would.
func (g ground) interpolated(ctx context.Context) map[string]any {
	GinkgoHelper()
	g.write("kubernetes/cpi.kubeconfig", "of create-env")
	g.write("kubernetes/director.kubeconfig", "of the director")
	var settings struct {
		OpsFiles []string `json:"ops_files"`
		Manifest string
	}
	Expect(yaml.Unmarshal([]byte(g.read("kubernetes/up.yml")), &settings)).To(Succeed())
	args := []string{settings.Manifest, "--var", "releases=/releases", "--vars-file", "kubernetes/vars.yml", "--var-file", "kubeconfig=kubernetes/cpi.kubeconfig",
		"--var-file", "director_kubeconfig=kubernetes/director.kubeconfig"}
	for _, each := range settings.OpsFiles {
		if !filepath.IsAbs(each) {
			each = "kubernetes/" + each
		}
		args = append(args, "--ops-file", each)
	}
	return g.interpolate(ctx, args...)
}

func (g ground) interpolate(ctx context.Context, args ...string) map[string]any {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "bosh", append([]string{"--non-interactive", "interpolate"}, args...)...)
	command.Dir = g.folder
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	var made map[string]any
	Expect(yaml.Unmarshal(out, &made)).To(Succeed())
	return made
}

// plugin has the cluster seem to have the network plugin with this DaemonSet; the test's end takes it away.
func plugin(ctx context.Context, daemonSet string) {
	GinkgoHelper()
	Expect(plane.Apply(ctx, fmt.Sprintf(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %[1]s, namespace: kube-system}, spec: {
		selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {nodeSelector: {none: such}, containers: [{name: a, image: i}]}}}}`, daemonSet))).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		_, err := plane.Kubectl(ctx, "delete", "daemonset", daemonSet, "--namespace", "kube-system")
		Expect(err).NotTo(HaveOccurred())
	})
}

// calico gives the cluster the kinds of Calico's that up looks at, and two pools: one for all Pods, and one for those that ask.
func calico(ctx context.Context) {
	GinkgoHelper()
	kind := func(kind, plural string) string {
		return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.crd.projectcalico.org}, spec: {
			group: crd.projectcalico.org, scope: Cluster, names: {kind: %[1]s, plural: %[2]s, singular: %[3]s}, versions: [{name: v1, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, kind, plural, strings.ToLower(kind))
	}
	Expect(plane.Apply(ctx, kind("IPPool", "ippools")+"\n---\n"+kind("IPReservation", "ipreservations"))).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		_, err := plane.Kubectl(ctx, "delete", "crd", "ippools.crd.projectcalico.org", "ipreservations.crd.projectcalico.org")
		Expect(err).NotTo(HaveOccurred())
	})
	Eventually(func() error { return plane.Apply(ctx, pools) }).WithContext(ctx).Should(Succeed())
}

const pools = `{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: pods}, spec: {cidr: 10.1.0.0/17, nodeSelector: all()}}
---
{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: bosh}, spec: {cidr: 10.1.128.0/17, nodeSelector: "!all()"}}`

// nameServers gives the cluster its name servers' Service.
func nameServers(ctx context.Context) {
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
