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
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/harness/director"
)

// Ports of each VM. They connect to the standard streams of a command, or to a server of the test.
const (
	portReply       = 7000 // responds with the VM's name after the client closes its sending direction
	portServer      = 7001 // the echoServer
	portClosed      = 7002 // nothing listens
	portFails       = 7003 // sends a partial response, and fails
	portGreeting    = 7004 // sends the VM's name, and closes the connection
	portReply2      = 8080 // like portReply
	closedLocalPort = 1
)

// kwokConfig returns the configuration of kwok's kubelet for the VMs of the agents old and new.
func kwokConfig() string {
	var config strings.Builder
	for _, agent := range []string{"old", "new"} {
		fmt.Fprintf(&config, `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: %[1]s}
spec:
  selector: {matchNames: [agent-%[1]s]}
  forwards:
  - {ports: [%[2]d, %[3]d], command: [bash, -c, 'heard=$(cat); echo "%[1]s heard: $heard"']}
  - {ports: [%[4]d], target: {address: 127.0.0.1, port: %[5]d}}
  - {ports: [%[6]d], target: {address: 127.0.0.1, port: %[7]d}}
  - {ports: [%[8]d], command: [bash, -c, 'echo half a response; exit 3']}
  - {ports: [%[9]d], command: [bash, -c, 'echo this is %[1]s']}
`, agent, portReply, portReply2, portServer, server.port(), portClosed, closedLocalPort, portFails, portGreeting)
	}
	fmt.Fprintf(&config, `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec:
  execs:
  - {containers: [vm], local: {envs: [{name: WHERE, value: in the VM}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec:
  logs:
  - {containers: [vm], logsFile: %[1]s, previousLogsFile: %[1]s, follow: false}
`, bootLog())
	return config.String()
}

// bootLog writes the log of each VM's init process, as container runtimes store it, and returns its path.
func bootLog() string {
	GinkgoHelper()
	path := filepath.Join(dir, "boot.log")
	Expect(os.WriteFile(path, []byte("2026-01-01T00:00:00.000000000Z stdout F booting\n2026-01-01T00:00:01.000000000Z stderr F up\n"), 0o600)).To(Succeed())
	return path
}

// echoServer is a TCP server behind a port of VMs that sends back all data.
type echoServer struct{ listener net.Listener }

func newEchoServer() *echoServer {
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
	return &echoServer{listener: listener}
}

func (s *echoServer) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// testEnv is a namespace with a director, and with an operator who has the documented permissions.
type testEnv struct {
	*director.Director
	namespace  string
	kubeconfig string // the operator's
}

var testEnvs int

func newTestEnv(ctx context.Context) testEnv {
	GinkgoHelper()
	testEnvs++
	e := testEnv{namespace: fmt.Sprintf("test-%d", testEnvs)}
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error { // the controller manager creates it; no Pod is admitted before
		_, err := cluster.CoreV1().ServiceAccounts(e.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	config := filepath.Join(dir, e.namespace+".json")
	Expect(director.WriteConfig(config, controlPlane.Kubeconfig("admin"), e.namespace, nil)).To(Succeed())
	createStorage(ctx, e.namespace)
	e.Director = &director.Director{CPI: cpi, Config: config}
	e.kubeconfig = e.createAccount(ctx, "operator", "../../manifests/rbac-kubectl-bosh.yaml")
	return e
}

// createStorage creates a StorageClass with one volume.
func createStorage(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := cluster.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "kubernetes.io/no-provisioner",
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:       name,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// createAccount creates a service account with the permissions of the Role in a file, or without permissions, and returns its kubeconfig.
func (e testEnv) createAccount(ctx context.Context, name, role string) string {
	GinkgoHelper()
	_, err := cluster.CoreV1().ServiceAccounts(e.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	if role != "" {
		e.grantRole(ctx, name, role)
	}
	token, err := cluster.CoreV1().ServiceAccounts(e.namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.LoadFromFile(controlPlane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.Contexts[config.CurrentContext].Namespace = e.namespace
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData = "", nil, "", nil
	user.Token = token.Status.Token
	path := filepath.Join(dir, e.namespace+"-"+name+".kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

func (e testEnv) grantRole(ctx context.Context, name, path string) {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var role rbacv1.Role
	Expect(yaml.Unmarshal(content, &role)).To(Succeed())
	_, err = cluster.RbacV1().Roles(e.namespace).Create(ctx, &role, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.RbacV1().RoleBindings(e.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: e.namespace, Name: name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (bool, error) { // the API server applies new RBAC objects after a moment
		review, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + e.namespace + ":" + name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: e.namespace},
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}).WithContext(ctx).Should(BeTrue())
}

// mustCall makes a call that must succeed.
func (e testEnv) mustCall(ctx context.Context, method string, arguments ...any) {
	GinkgoHelper()
	response, err := e.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
}

const stemcellCID = "registry.example.com/stemcell@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"

func manualNetwork(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "netmask": "255.255.255.0", "gateway": "10.9.8.1",
		"cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// createVM creates the agent's VM with a requested address.
func (e testEnv) createVM(ctx context.Context, agent, address string, properties map[string]any) {
	GinkgoHelper()
	if properties == nil {
		properties = map[string]any{}
	}
	e.mustCall(ctx, "create_vm", agent, stemcellCID, properties, manualNetwork(address), []string{}, map[string]any{})
}

// createDynamicVM creates the agent's VM with an address that the cluster chooses.
func (e testEnv) createDynamicVM(ctx context.Context, agent string, properties map[string]any) {
	GinkgoHelper()
	if properties == nil {
		properties = map[string]any{}
	}
	network := map[string]any{"default": map[string]any{"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}}}
	e.mustCall(ctx, "create_vm", agent, stemcellCID, properties, network, []string{}, map[string]any{})
}

// setMetadata sets the VM's metadata, like a director.
func (e testEnv) setMetadata(ctx context.Context, agent, deployment, group, index string) {
	GinkgoHelper()
	e.mustCall(ctx, "set_vm_metadata", "agent-"+agent, map[string]any{"director": "my-director", "deployment": deployment,
		"job": group, "instance_group": group, "index": index, "id": "id-of-" + agent, "name": group + "/id-of-" + agent})
}

// run runs kubectl bosh as the operator, and waits for it.
func (e testEnv) run(args ...string) *gexec.Session {
	GinkgoHelper()
	return e.runWithPath(os.Getenv("PATH"), args...)
}

// runWithKubectl is run with a shell script in place of kubectl.
func (e testEnv) runWithKubectl(script string, args ...string) *gexec.Session {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+script), 0o700)).To(Succeed())
	return e.runWithPath(dir+":"+os.Getenv("PATH"), args...)
}

func (e testEnv) runWithPath(path string, args ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(program, append(args[:1:1], append([]string{"--kubeconfig", e.kubeconfig}, args[1:]...)...)...)
	command.Env = append(os.Environ(), "PATH="+path)
	session := startCommand(command)
	Eventually(session).Should(gexec.Exit())
	return session
}

// mustRun runs a command that must succeed, and returns its output.
func (e testEnv) mustRun(args ...string) string {
	GinkgoHelper()
	session := e.run(args...)
	Expect(session).To(gexec.Exit(0))
	return string(session.Out.Contents())
}

// attachNewDisk creates a disk of 64 MiB, attaches it to the agent's VM, and returns its CID.
func (e testEnv) attachNewDisk(ctx context.Context, agent string) string {
	GinkgoHelper()
	response, err := e.Call(ctx, "create_disk", 64, map[string]any{"storage_class": e.namespace}, "agent-"+agent)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil())
	e.mustCall(ctx, "attach_disk", "agent-"+agent, response.Text())
	return response.Text()
}

// annotatePod sets an annotation of a Pod.
func (e testEnv) annotatePod(ctx context.Context, pod, key, value string) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	_, err := cluster.CoreV1().Pods(e.namespace).Patch(ctx, pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// markUnready sets the condition Ready of a Pod to False.
func (e testEnv) markUnready(ctx context.Context, name string) {
	GinkgoHelper()
	pod, err := cluster.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			pod.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	_, err = cluster.CoreV1().Pods(e.namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// createEvent creates an Event of a Pod.
func (e testEnv) createEvent(ctx context.Context, pod, reason, message string) {
	GinkgoHelper()
	object, err := cluster.CoreV1().Pods(e.namespace).Get(ctx, pod, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CoreV1().Events(e.namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "event-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: e.namespace, Name: pod, UID: object.UID},
		Reason:         reason, Message: message, LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}
