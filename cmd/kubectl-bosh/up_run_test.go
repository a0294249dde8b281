package main_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// imagePolicy rejects all images except those of the stemcell and of bosh-node.
const imagePolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "object.spec.containers.all(c, c.image.matches('^(registry.example.com/stemcell|programs.example.com/bosh-node)@'))"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec: {policyName: NAMESPACE, validationActions: [Deny]}
`

var _ = Describe("kubectl bosh up and down", func() {
	var ws workspace
	BeforeEach(func() { ws = newWorkspaceWithCLI() })

	It("create a namespace with the documented permissions, run the BOSH CLI through a proxy, and delete everything", func(ctx SpecContext) {
		session := ws.up()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Create or update the director kubernetes in namespace ` + ws.namespace + ` of the cluster .*\? \[yN\]: `))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `, ServiceAccount .*: created\n`))
		Expect(session.Out).To(gbytes.Say(`check: all required preflight checks passed`))
		Expect(session.Out).To(gbytes.Say(`eval "\$\(kubectl bosh env --dir kubernetes --kubeconfig .*\)"\n`))
		Expect(ws.read("calls")).To(MatchRegexp(`^socks5://127\.0\.0\.1:\d+\ncreate-env\n` + ws.path("bosh-deployment/bosh.yml") + "\n"))
		Expect(ws.read("manifest.yml")).To(ContainSubstring("bosh-cpi"), "the manifest contains the kubeconfig")

		namespace, err := cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "privileged"))
		role, err := cluster.RbacV1().Roles(ws.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(role.Rules).To(Equal(documentedRules("Role")))
		clusterRole, err := cluster.RbacV1().ClusterRoles().Get(ctx, "bosh-cpi-"+ws.namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(clusterRole.Rules).To(Equal(documentedRules("ClusterRole")))
		ws.expectCPIWorks(ctx, ws.path("kubernetes/cpi.kubeconfig"))

		previous, token := ws.read("manifest.yml"), ws.read("kubernetes/cpi.token")
		session = ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(ws.read("kubernetes/cpi.token")).NotTo(Equal(token))
		Expect(ws.read("manifest.yml")).To(Equal(previous), "create-env would recreate the VM because of a token")
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `, ServiceAccount .*: unchanged\n`))
		Expect(strings.Count(ws.read("calls"), "create-env\n")).To(Equal(2))

		session = ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`ClusterRoleBinding bosh-cpi-` + ws.namespace + `: deleted\n`))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `: deleted\n`))
		Expect(session.Out).To(gbytes.Say(`kubernetes: kept`))
		Expect(ws.read("calls")).To(ContainSubstring("\ndelete-env\n"))
		ws.expectDeleted(ctx)
	})

	It("with --credentials kubeconfig, create a kubeconfig with a token that does not expire", func(ctx SpecContext) {
		Expect(ws.up("--credentials", "kubeconfig")).To(gexec.Exit(0))
		config, err := clientcmd.LoadFromFile(ws.path("kubernetes/director.kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Clusters["kubernetes"].Server).To(Equal("https://10.246.0.1:443"))
		config.Clusters["kubernetes"].Server = controlPlane.URL() // there is no kube-proxy
		Expect(clientcmd.WriteToFile(*config, ws.path("reachable.kubeconfig"))).To(Succeed())
		ws.expectCPIWorks(ctx, ws.path("reachable.kubeconfig"))
		Expect(ws.down()).To(gexec.Exit(0))
		ws.expectDeleted(ctx)
	})

	It("keep an existing namespace and VMs of deployments", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		ws.namespace = env.namespace
		Expect(ws.up()).To(gexec.Exit(0))
		env.createVM(ctx, "old", address, nil)
		session := ws.down()
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: namespace ` + env.namespace + ` has VMs or disks other than the director's own: VM agent-old; delete the deployments first`))
		session = ws.down("--force")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("Role " + env.namespace + "/bosh-cpi: kept for the remaining VMs and disks\n"))
		Expect(session.Out).To(gbytes.Say("Namespace " + env.namespace + ": kept: not created by `up`\n"))
		env.mustCall(ctx, "delete_vm", "agent-old")
		session = ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("ResourceQuota " + env.namespace + "/bosh-attachments: deleted\n"))
		Expect(session.Out).To(gbytes.Say("Role " + env.namespace + "/bosh-cpi: deleted\n"))
	})

	It("ignore Pods of an interrupted deep check, and find a VM with disk_strategy: recreate without a Pod", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		Expect(ws.up()).To(gexec.Exit(0))
		ws.createProbe(ctx)
		pvc := manifest.VM{Name: "agent-drained", Namespace: ws.namespace, Director: "d", EphemeralClaim: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}.EphemeralPVC(&corev1.PodTemplate{})
		pvc.OwnerReferences = nil
		_, err := cluster.CoreV1().PersistentVolumeClaims(ws.namespace).Create(ctx, pvc, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		session := ws.down()
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: namespace \S+ has VMs or disks other than the director's own: VM agent-drained; delete`))
	})

	It("delete the director's Services after delete-env was interrupted when it had deleted the state", func(ctx SpecContext) {
		Expect(ws.up()).To(gexec.Exit(0))
		ws.createKeptService(ctx)
		ws.write("interrupted", "")
		Expect(ws.down()).To(gexec.Exit(130))
		Expect(ws.path("kubernetes/state.json")).NotTo(BeAnExistingFile())
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: `kubectl bosh down --dir kubernetes` deleted the director, but not yet its Services"))

		session = ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Service \S+/bosh-director: deleted\n`))
		Expect(ws.read("kubernetes/up.yml")).NotTo(ContainSubstring("deleted_director"))
		ws.expectDeleted(ctx)
	})

	DescribeTable("are refused if a file is lost, before the cluster is changed", func(ctx SpecContext, message string, lose func(), command ...string) {
		Expect(ws.up()).To(gexec.Exit(0))
		lose()
		calls := ws.read("calls")
		session := ws.run("y\n", append(command, "--bosh", "./create-env")...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(message))
		Expect(ws.read("calls")).To(Equal(calls))
	},
		Entry("the state", "state.json has no director_id, and may have lost the VM and the disk of the director; restore the file from a backup",
			func() { ws.write("kubernetes/state.json", "") }, "down"),
		Entry("the state, with up", "state.json has no director_id", func() { ws.write("kubernetes/state.json", "") }, "up"),
		Entry("the release", "cpi.tgz does not exist; restore it, or change kubernetes_cpi_url in kubernetes/vars.yml",
			func() { Expect(os.Remove(ws.path("cpi.tgz"))).To(Succeed()) }, "down"),
		Entry("the stemcell, with up", "stemcell.tgz does not exist; restore it, or change stemcell_url in kubernetes/vars.yml",
			func() { Expect(os.Remove(ws.path("stemcell.tgz"))).To(Succeed()) }, "up"),
		Entry("bosh-deployment", "bosh.yml does not exist; restore it, or change manifest in kubernetes/up.yml",
			func() { Expect(os.Remove(ws.path("bosh-deployment/bosh.yml"))).To(Succeed()) }, "down"),
	)

	It("delete the other objects if the namespace was deleted with the director", func(ctx SpecContext) {
		Expect(ws.up()).To(gexec.Exit(0))
		_, err := controlPlane.Kubectl(ctx, "delete", "namespace", ws.namespace)
		Expect(err).NotTo(HaveOccurred())
		session := ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("delete-env: skipped: namespace " + ws.namespace + " does not exist\n"))
		Expect(session.Out).To(gbytes.Say("ClusterRole bosh-cpi-" + ws.namespace + ": deleted\n"))
		Expect(ws.path("kubernetes/state.json")).NotTo(BeAnExistingFile())
	})

	It("are refused if the operator's edit of up.yml is not valid", func() {
		Expect(ws.up()).To(gexec.Exit(0))
		ws.write("kubernetes/up.yml", strings.ReplaceAll(ws.read("kubernetes/up.yml"), "namespace: ", "nmespace: "))
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: kubernetes/up.yml: namespace "" is not valid: `))
	})

	It("are refused until the BOSH CLI of a killed run ends", func() {
		ws.write("waits", "")
		killed := ws.start("y\n", append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--bosh", "./create-env")...)
		Eventually(ws.path).WithArguments("calls").Should(BeAnExistingFile())
		killed.Kill()
		Eventually(ws.path).WithArguments("cli.pid").Should(BeAnExistingFile())
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: another `kubectl bosh up` or `down`, or its BOSH CLI, uses directory kubernetes; wait until it ends"))
		Expect(os.Remove(ws.path("waits"))).To(Succeed())
		Eventually(func() *gexec.Session { return ws.run("y\n", "up", "--bosh", "./create-env") }).Should(gexec.Exit(0))
	})

	It("let only their user read what the BOSH CLI writes to a directory that others can read", func() {
		Expect(os.Mkdir(ws.path("kubernetes"), 0o755)).To(Succeed())
		Expect(ws.up()).To(gexec.Exit(0))
		info, err := os.Stat(ws.path("kubernetes/creds.yml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	})

	It("are refused while another one uses the directory", func() {
		Expect(ws.up()).To(gexec.Exit(0))
		input, terminal, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		command := exec.Command(program, "down", "--kubeconfig", ws.kubeconfig)
		command.Dir, command.Stdin = ws.dir, input
		waiting := startCommand(command)
		Eventually(waiting.Out).Should(gbytes.Say(`\[yN\]: `))
		files := ws.readFiles()
		session := ws.run("y\n", "up", "--bosh", "./create-env", "--var", "another=1")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: another `kubectl bosh up` or `down`, or its BOSH CLI, uses directory kubernetes; wait until it ends"))
		Expect(ws.readFiles()).To(Equal(files))
		Expect(terminal.Close()).To(Succeed())
		Eventually(waiting).Should(gexec.Exit(1))
		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
	})

	It("can be interrupted at the confirmation", func() {
		Expect(ws.up()).To(gexec.Exit(0))
		input, terminal, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(terminal.Close)
		command := exec.Command(program, "down", "--kubeconfig", ws.kubeconfig)
		command.Dir, command.Stdin = ws.dir, input
		session := startCommand(command)
		Eventually(session.Out).Should(gbytes.Say(`\[yN\]: `))
		session.Interrupt()
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: interrupted: the cluster was not changed"))
	})

	It("do not run the BOSH CLI after an interruption during the deep checks", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		ws.writeImages(ctx)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // the program would inherit from nohup that it is ignored
		DeferCleanup(signal.Reset, syscall.SIGHUP)
		session := ws.start("y\n", append(firstRunArgs, "--namespace", ws.namespace, "--bosh", "./create-env", "--no-proxy")...)
		Eventually(session.Out).Should(gbytes.Say("Pods of the stemcell run"))
		session.Signal(syscall.SIGHUP)
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: interrupted before bosh create-env; to continue, run the same command again"))
		Expect(ws.path("calls")).NotTo(BeAnExistingFile())
		pods, err := cluster.CoreV1().Pods(ws.namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).To(BeEmpty())
	})

	It("wait until a namespace that is being deleted is gone", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		_, err := cluster.CoreV1().ConfigMaps(ws.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "remaining", Finalizers: []string{"example.com/wait"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.CoreV1().Namespaces().Delete(ctx, ws.namespace, metav1.DeleteOptions{})).To(Succeed())
		session := ws.start("y\n", append(firstRunArgs, "--namespace", ws.namespace, "--bosh", "./create-env")...)
		Eventually(session.Out).Should(gbytes.Say(`\(being deleted; up waits until it is gone\)`))
		_, err = controlPlane.Kubectl(ctx, "patch", "configmap", "remaining", "--namespace", ws.namespace, "--type=merge", "--patch", `{"metadata": {"finalizers": null}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `, ServiceAccount .*: created\n`))
	})

	DescribeTable("keep a namespace that is not empty", func(ctx SpecContext, remaining string, create ...string) {
		Expect(ws.up()).To(gexec.Exit(0))
		_, err := controlPlane.Kubectl(ctx, append(append([]string{"create"}, create...), "--namespace", ws.namespace)...)
		Expect(err).NotTo(HaveOccurred())
		session := ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `: kept: it contains ` + remaining + `\n`))
	},
		Entry("because it has a Service", `services \(1\)`, "service", "clusterip", "mine", "--tcp=80"),
		Entry("because it has a Deployment without Pods", `deployments \(1\)`, "deployment", "mine", "--image=mine", "--replicas=0"),
		Entry("because it has a CronJob", `cronjobs \(1\)`, "cronjob", "mine", "--image=mine", "--schedule=0 0 1 1 *"),
		Entry("because it has a Secret", `secrets \(1\)`, "secret", "generic", "mine"),
		Entry("because it has a ConfigMap", `configmaps \(1\)`, "configmap", "mine"),
	)

	It("stop before create-env after a failed preflight check, except with --no-check", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		ws.namespace = env.namespace
		_, err := controlPlane.Kubectl(ctx, "create", "quota", "none", "--hard=pods=0", "--namespace", ws.namespace)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() *gexec.Session { return ws.up() }).WithContext(ctx).Should(gexec.Exit(1)) // when the quota is in effect
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Out).To(gbytes.Say(`create-vm +required +fails +create Pod .*exceeded quota`))
		Expect(session.Err).To(gbytes.Say(`^error: preflight checks failed in namespace ` + ws.namespace))
		Expect(ws.path("calls")).NotTo(BeAnExistingFile())
		Expect(ws.run("y\n", "up", "--bosh", "./create-env", "--no-check")).To(gexec.Exit(0))
	})

	It("check Pods with the images of the stemcell and of bosh-node, because an admission policy may reject other images", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		Expect(controlPlane.Apply(ctx, strings.ReplaceAll(imagePolicy, "NAMESPACE", ws.namespace))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error {
			_, err := controlPlane.Kubectl(ctx, "delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", ws.namespace)
			return err
		})
		Eventually(func() error {
			_, err := controlPlane.Kubectl(ctx, "run", "other", "--image=registry.invalid/a", "--dry-run=server", "--namespace", ws.namespace)
			return err
		}).WithContext(ctx).Should(MatchError(ContainSubstring("ValidatingAdmissionPolicy")))
		ws.writeImages(ctx)
		Expect(ws.up("--credentials", "kubeconfig")).To(gexec.Exit(0))
	})

	DescribeTable("check the access of VMs to the API server before create-env", func(ctx SpecContext, apiFact string, exitCode int) {
		ws.writeImages(ctx)
		session := ws.start("y\n", append(firstRunArgs, "--namespace", ws.namespace, "--bosh", "./create-env")...)
		Eventually(func(g Gomega) {
			pods, err := cluster.CoreV1().Pods(ws.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/director-uuid=preflight"})
			g.Expect(err).NotTo(HaveOccurred())
			for _, pod := range pods.Items { // kwok's kubelet does not run their script
				Expect(pod.Spec.Containers[0].Image).To(HavePrefix("registry.example.com/stemcell@sha256:"))
				_, _ = controlPlane.Kubectl(ctx, "annotate", "--overwrite", "pod", pod.Name, "--namespace", ws.namespace, "test/facts=loop yes\ndummy no\nbridge yes\napi "+apiFact+"\n")
			}
			g.Expect(session).To(gexec.Exit(exitCode))
		}).WithContext(ctx).Should(Succeed())
		if exitCode == 0 {
			Expect(session.Out).To(gbytes.Say(`check: VMs reach the API server, but other checks failed, .*; continuing\n`))
			Expect(session.Out).To(gbytes.Say(`links +advised +fails +network links of type dummy cannot be created, .* on node-a\n +→ install and load the module dummy`))
			Expect(ws.path("calls")).To(BeAnExistingFile())
			return
		}
		Expect(session.Out).To(gbytes.Say(`in-cluster-api +advised +fails +a VM cannot reach the API server on node-a`))
		Expect(session.Err).To(gbytes.Say(`^error: VMs in namespace ` + ws.namespace + ` cannot reach the API server`))
		Expect(ws.path("calls")).NotTo(BeAnExistingFile())
	},
		Entry("and continue with it", "yes", 0),
		Entry("and stop without it", "no", 1),
	)

	It("exit with the exit status of the BOSH CLI", func() {
		ws.write("fails", "")
		session := ws.up()
		Expect(session).To(gexec.Exit(7))
		Expect(session.Err).To(gbytes.Say(`error: bosh create-env failed; see its output above`))
	})

	It("stop before create-env if the stemcell does not fit the compiled releases", func() {
		ws.write("bosh-deployment/bosh.yml", strings.ReplaceAll(ws.read("bosh-deployment/bosh.yml"), "/bpm.tgz", "/bpm-1.4.38-ubuntu-noble-1.484.tgz"))
		session := ws.up("--stemcell", "https://example.com/light-bosh-stemcell-1.639-kubernetes-ubuntu-jammy.tgz", "--release-sha1", sha1Sum, "--stemcell-sha1", sha1Sum)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: the stemcell has operating system ubuntu-jammy, but these releases of .*bosh.yml are compiled for ubuntu-noble: bpm;`))
		Expect(filepath.Join(ws.dir, "calls")).NotTo(BeAnExistingFile())
	})

	It("with --no-proxy, run the BOSH CLI without a proxy", func() {
		session := ws.up("--no-proxy")
		Expect(session).To(gexec.Exit(0))
		Expect(ws.read("calls")).To(HavePrefix("\ncreate-env\n"))
		Expect(session.Out).To(gbytes.Say("cloud config: not uploaded: the address of the cluster's DNS is unknown; set cluster_dns in kubernetes/cloud-config-vars.yml"))
		Expect(ws.read("director")).To(HavePrefix("admin:swordfish@10.246.0.60 CA  upload-stemcell "))
	})

	It("report missing permissions in the words of the API server", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		ws.kubeconfig = env.createAccount(ctx, "guest", "")
		session := ws.up("--address", "10.246.0.77")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: apply Namespace ` + ws.namespace + `: namespaces "` + ws.namespace + `" is forbidden: User ` +
			`"system:serviceaccount:` + env.namespace + `:guest" cannot get resource .*; an administrator can apply the output of .kubectl bosh up --print-permissions --namespace ` + ws.namespace + `.`))
		Expect(filepath.Join(ws.dir, "calls")).NotTo(BeAnExistingFile())
	})

	It("configure the director, keep its configs later, and upload the current stemcell", func(ctx SpecContext) {
		createDNSService(ctx)
		ws.write("bosh-deployment/runtime-configs/dns.yml", `{addons: [{name: bosh-dns, jobs: [{name: bosh-dns, properties: {}}]},
			{name: bosh-dns-systemd, jobs: [{name: bosh-dns, properties: {ca: ((/dns_ca.certificate))}}]}],
			variables: [{name: /dns_ca, type: certificate, options: {is_ca: true, common_name: dns}}]}`)
		Expect(ws.up()).To(gexec.Exit(0))
		const login = "admin:swordfish@10.246.0.60 CA socks5://127.0.0.1 "
		steps := strings.Split(strings.TrimSpace(ws.read("director")), "\n")
		// The director downloads BOSH DNS, which fails without a route to the internet: this step is the last.
		Expect(steps).To(HaveExactElements(HavePrefix(login+"upload-stemcell "+ws.path("stemcell.tgz")),
			HavePrefix(login+"update-cloud-config kubernetes/cloud-config.yml "), HavePrefix(login+"update-runtime-config --name dns ")))
		for i, step := range steps[1:] {
			_, arguments, _ := strings.Cut(step, "-config ")
			arguments = strings.TrimPrefix(strings.ReplaceAll(arguments, "--tty", ""), "--name dns ")
			Expect(ws.interpolate(ctx, append([]string{"--var-errs"}, strings.Fields(arguments)...)...)).To(HaveKey([]string{"networks", "addons"}[i]))
		}

		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("cloud config: kept: the director has one\n"))
		Expect(session.Out).To(gbytes.Say("runtime config of BOSH DNS: kept: the director has one\n"))
		later := strings.Split(strings.TrimSpace(ws.read("director")), "\n")[3:]
		Expect(later).To(HaveExactElements(HavePrefix(login + "upload-stemcell ")))
	})

	It("exit with the exit status of the BOSH CLI if the director rejects an upload, and print its command", func(ctx SpecContext) {
		createDNSService(ctx)
		ws.write("director-fails", "")
		session := ws.up()
		Expect(session).To(gexec.Exit(3))
		Expect(session.Err).To(gbytes.Say(`error: the director runs, but the stemcell could not be uploaded; .* and run: ./create-env upload-stemcell `))
	})

	It("name everything that the host does not have before the question", func() {
		cli, err := exec.LookPath("bosh")
		Expect(err).NotTo(HaveOccurred())
		ws.write("old", "#!/bin/sh\n[ $1 != interpolate ] || exec "+cli+" \"$@\"\necho version 6.4.4-abc\n")
		session := ws.startWith([]string{"PATH=/empty"}, "y\n", append(firstRunArgs, "--namespace", ws.namespace, "--bosh", "./old")...)
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Out).NotTo(gbytes.Say("Create or update"))
		Expect(session.Err).To(gbytes.Say("^error: ./old has version 6, but version 7 is required; install it .*\n" +
			"cannot find ruby, with which the BOSH CLI renders the director's templates; install it, for example with"))
		Expect(ws.path("calls")).NotTo(BeAnExistingFile())
	})

	It("name the variables of the manifest without a value before the question", func() {
		ws.write("ops.yml", "[{type: replace, path: '/disk_pools/0/cloud_properties?', value: ((nope))}]")
		session := ws.up("--ops-file", "ops.yml")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: these variables of .*/bosh.yml have no value: nope; set each of them with --var name=value\n`))
		Expect(ws.path("calls")).NotTo(BeAnExistingFile())
	})

	It("reject a directory that up did not write", func() {
		session := ws.down()
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: directory kubernetes has no up.yml: `kubectl bosh up` did not create a director there"))
	})
})
