package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
	for _, agent := range []string{"old", "new", "other"} {
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
	return text.String()
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
	w.Director = &director.Director{CPI: cpi, Config: config}
	w.operator = w.account(ctx, "operator", "../../docs/rbac-kubectl-bosh.yaml")
	return w
}

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
	network := map[string]any{"default": map[string]any{"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}}}
	w.must(ctx, "create_vm", agent, stemcellCID, properties, network, []string{}, map[string]any{})
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
