package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/director"
)

// Ports of each machine. What listens there is a command of its own with the connection for its standard streams, or a
// server of the test's.
const (
	portHears   = 7000 // answers with the machine's name once the client has sent all
	portServer  = 7001 // server
	portClosed  = 7002 // nothing
	portFails   = 7003 // says something, and fails
	portGreets  = 7004 // says the machine's name, and ends at once
	portHears2  = 8080 // as portHears
	closedLocal = 1
)

// kubelet is what kwok's kubelet does for machines of these agents.
func kubelet() string {
	var text strings.Builder
	for _, agent := range []string{"old", "new"} {
		fmt.Fprintf(&text, `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: %[1]s}
spec:
  selector: {matchNames: [agent-%[1]s]}
  forwards:
  - {ports: [%[2]d, %[3]d], command: [bash, -c, 'heard=$(cat); echo "%[1]s heard: $heard"']}
  - {ports: [%[4]d], target: {address: 127.0.0.1, port: %[5]d}}
  - {ports: [%[6]d], target: {address: 127.0.0.1, port: %[7]d}}
  - {ports: [%[8]d], command: [bash, -c, 'echo half an answer; exit 3']}
  - {ports: [%[9]d], command: [bash, -c, 'echo this is %[1]s']}
`, agent, portHears, portHears2, portServer, server.port(), portClosed, closedLocal, portFails, portGreets)
	}
	fmt.Fprintf(&text, `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec:
  execs:
  - {containers: [machine], local: {envs: [{name: WHERE, value: in the machine}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec:
  logs:
  - {containers: [machine], logsFile: %[1]s, previousLogsFile: %[1]s, follow: false}
`, bootLog())
	return text.String()
}

// bootLog is a file with what each machine's init has written, as a container runtime keeps it.
func bootLog() string {
	GinkgoHelper()
	path := filepath.Join(dir, "boot.log")
	Expect(os.WriteFile(path, []byte("2026-01-01T00:00:00.000000000Z stdout F booting\n2026-01-01T00:00:01.000000000Z stderr F up\n"), 0o600)).To(Succeed())
	return path
}

// inMachine is a TCP server that a machine's port leads to: it sends back what it gets.
type inMachine struct{ listener net.Listener }

func newInMachine() *inMachine {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	return &inMachine{listener: listener}
}

func (s *inMachine) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// world is a namespace of its own, with a director that works in it and an operator with the documented rights.
type world struct {
	*director.Director
	namespace string
	operator  string // a kubeconfig
}

var worlds int

func newWorld(ctx context.Context) world {
	GinkgoHelper()
	worlds++
	w := world{namespace: fmt.Sprintf("world-%d", worlds)}
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error { // the controller manager makes it; without it no Pod is admitted
		_, err := cluster.CoreV1().ServiceAccounts(w.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	config := filepath.Join(dir, w.namespace+".json")
	Expect(director.WriteConfig(config, plane.Kubeconfig("admin"), w.namespace, nil)).To(Succeed())
	Expect(plane.Apply(ctx, fmt.Sprintf(storage, w.namespace))).To(Succeed())
	w.Director = &director.Director{CPI: cpi, Config: config}
	w.operator = w.account(ctx, "operator", "../../docs/rbac-kubectl-bosh.yaml")
	return w
}

// storage is a class with one volume.
const storage = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: %[1]s
  hostPath: {path: /nowhere}
`

// account returns the kubeconfig of a new account of this name, which has the rights of this Role; none without a path.
func (w world) account(ctx context.Context, name, role string) string {
	GinkgoHelper()
	_, err := cluster.CoreV1().ServiceAccounts(w.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	if role != "" {
		w.give(ctx, name, role)
	}
	token, err := cluster.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.Contexts[config.CurrentContext].Namespace = w.namespace
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData = "", nil, "", nil
	user.Token = token.Status.Token
	path := filepath.Join(dir, w.namespace+"-"+name+".kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

func (w world) give(ctx context.Context, name, path string) {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var role rbacv1.Role
	Expect(yaml.Unmarshal(content, &role)).To(Succeed())
	_, err = cluster.RbacV1().Roles(w.namespace).Create(ctx, &role, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.RbacV1().RoleBindings(w.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (bool, error) { // the API server learns of rights a moment after they were given
		answer, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + w.namespace + ":" + name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: w.namespace},
			},
		}, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	}).WithContext(ctx).Should(BeTrue())
}

// must makes a call that has to succeed.
func (w world) must(ctx context.Context, method string, arguments ...any) {
	GinkgoHelper()
	response, err := w.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
}

const stemcellCID = "registry.example.com/stemcell@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"

func manual(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "netmask": "255.255.255.0", "gateway": "10.9.8.1",
		"cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// create makes the agent's machine at this address.
func (w world) create(ctx context.Context, agent, address string, properties map[string]any) {
	GinkgoHelper()
	if properties == nil {
		properties = map[string]any{}
	}
	w.must(ctx, "create_vm", agent, stemcellCID, properties, manual(address), []string{}, map[string]any{})
}

// createDynamic makes the agent's machine at an address that the cluster chooses.
func (w world) createDynamic(ctx context.Context, agent string, properties map[string]any) {
	GinkgoHelper()
	if properties == nil {
		properties = map[string]any{}
	}
	network := map[string]any{"default": map[string]any{"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}}}
	w.must(ctx, "create_vm", agent, stemcellCID, properties, network, []string{}, map[string]any{})
}

// name gives the machine what the director says of each.
func (w world) name(ctx context.Context, agent, deployment, group, index string) {
	GinkgoHelper()
	w.must(ctx, "set_vm_metadata", "agent-"+agent, map[string]any{"director": "my-director", "deployment": deployment,
		"job": group, "instance_group": group, "index": index, "id": "id-of-" + agent, "name": group + "/id-of-" + agent})
}

// run runs kubectl bosh as the operator, to its end.
func (w world) run(args ...string) *gexec.Session {
	GinkgoHelper()
	session := start(exec.Command(program, append(args[:1:1], append([]string{"--kubeconfig", w.operator}, args[1:]...)...)...))
	Eventually(session).Should(gexec.Exit())
	return session
}

// prints is what a command prints that has to succeed.
func (w world) prints(args ...string) string {
	GinkgoHelper()
	session := w.run(args...)
	Expect(session).To(gexec.Exit(0))
	return string(session.Out.Contents())
}

// attachDisk makes a disk of 64 MiB with a volume, attaches it to the agent's machine, and returns its CID.
func (w world) attachDisk(ctx context.Context, agent string) string {
	GinkgoHelper()
	response, err := w.Call(ctx, "create_disk", 64, map[string]any{"storage_class": w.namespace}, "agent-"+agent)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil())
	w.must(ctx, "attach_disk", "agent-"+agent, response.Text())
	return response.Text()
}

// annotate sets an annotation of the Pod.
func (w world) annotate(ctx context.Context, pod, key, value string) {
	GinkgoHelper()
	_, err := plane.Kubectl(ctx, "annotate", "pod", pod, "--namespace", w.namespace, key+"="+value)
	Expect(err).NotTo(HaveOccurred())
}

// unready has the machine's Pod be not ready.
func (w world) unready(ctx context.Context, name string) {
	GinkgoHelper()
	pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			pod.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	_, err = cluster.CoreV1().Pods(w.namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// event reports one of a Pod.
func (w world) event(ctx context.Context, pod, reason, message string) {
	GinkgoHelper()
	about, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, pod, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CoreV1().Events(w.namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "event-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: pod, UID: about.UID},
		Reason:         reason, Message: message, LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}
