package embedded

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/test/harness/authority"
)

// ControlPlane is etcd, the API server, the controller manager and the scheduler.
type ControlPlane struct {
	Dir   string
	Child bool // see Process
	// APIPort is the port of the API server, EtcdPort and EtcdPeerPort those of etcd.
	APIPort, EtcdPort, EtcdPeerPort int
	// APIServerFlags are additional flags of the API server.
	APIServerFlags []string
}

// users are the users with client certificates. Each is a name, followed by groups.
var users = [][]string{
	{"admin", "system:masters"},
	{"system:kube-controller-manager"},
	{"system:kube-scheduler"},
	{"system:kube-proxy"},
	{"provisioner", "system:masters"},
	{"cni", "system:masters"},
	{"dns", "system:masters"},
	{"csi", "system:masters"},
}

// FreePort returns a TCP port on loopback that nothing listens on.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// NewTestControlPlane returns a control plane on free ports. Its processes are killed when the calling process exits.
func NewTestControlPlane(dir string) (*ControlPlane, error) {
	c := &ControlPlane{Dir: dir, Child: true}
	for _, port := range []*int{&c.APIPort, &c.EtcdPort, &c.EtcdPeerPort} {
		freePort, err := FreePort()
		if err != nil {
			return nil, err
		}
		*port = freePort
	}
	return c, nil
}

// apiServiceIP is the address of the Service default/kubernetes: the first address of the Service range.
const apiServiceIP = "10.246.0.1"

// URL returns the URL of the API server.
func (c *ControlPlane) URL() string { return urlAt(c.APIPort) }

func urlAt(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func (c *ControlPlane) pkiFile(file string) string { return filepath.Join(c.Dir, "pki", file) }

// Kubeconfig returns the path of a user's kubeconfig file.
func (c *ControlPlane) Kubeconfig(user string) string {
	return filepath.Join(c.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
}

// AdminClient returns the admin's configuration and client, which are not throttled. The client uses protobuf, which costs the API server
// less CPU time than JSON.
func (c *ControlPlane) AdminClient() (*rest.Config, *kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig("admin"))
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType, protobuf.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(protobuf)
	return config, client, err
}

// Kubectl runs kubectl as the admin.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, "kubectl", append([]string{"--kubeconfig", c.Kubeconfig("admin")}, args...)...)
}

// Apply applies manifests as the admin.
func (c *ControlPlane) Apply(ctx context.Context, manifests string) error {
	_, err := RunInput(ctx, manifests, "kubectl", "--kubeconfig", c.Kubeconfig("admin"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// Start starts all processes that are not running, and waits until the API server is ready.
func (c *ControlPlane) Start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	for _, process := range c.processes() {
		if err := process.Start(); err != nil {
			return err
		}
		if process.Name == "kube-apiserver" {
			if err := waitReady(ctx, process, c.URL()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stop stops all processes, in reverse order.
func (c *ControlPlane) Stop() error { return stopAll(c.processes()) }

// Process returns one of the control plane's processes by name.
func (c *ControlPlane) Process(name string) Process {
	for _, process := range c.processes() {
		if process.Name == name {
			return process
		}
	}
	panic("unknown process " + name)
}

func (c *ControlPlane) processes() []Process {
	etcd := c.etcdURL()
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.EtcdPeerPort)
	process := func(name string, args ...string) Process {
		return Process{Name: name, Dir: c.Dir, Args: append([]string{name}, args...), Env: c.env(), Child: c.Child}
	}
	return []Process{
		// The fault tests write more than the default quota of 2 GiB between two compactions.
		process("etcd", "--data-dir="+c.etcdDir(), "--unsafe-no-fsync", "--log-level=error",
			"--quota-backend-bytes="+strconv.Itoa(8<<30),
			"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer),
		c.apiServer("kube-apiserver", c.APIPort),
		process("kube-controller-manager", "--kubeconfig="+c.Kubeconfig("system:kube-controller-manager"), "--leader-elect=false",
			"--secure-port=0", "--use-service-account-credentials", "--root-ca-file="+c.pkiFile("ca.crt"),
			"--service-account-private-key-file="+c.pkiFile("service-accounts.key")),
		process("kube-scheduler", "--kubeconfig="+c.Kubeconfig("system:kube-scheduler"), "--leader-elect=false", "--secure-port=0"),
	}
}

// env returns variables for all processes. By default, garbage collection uses a fifth of the API server's CPU time in tests.
func (c *ControlPlane) env() []string {
	if c.Child {
		return []string{"GOGC=400"}
	}
	return nil
}

func (c *ControlPlane) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", c.EtcdPort) }

func (c *ControlPlane) apiServer(name string, port int) Process {
	return Process{Name: name, Dir: c.Dir, Env: c.env(), Child: c.Child, Args: append([]string{
		"kube-apiserver",
		"--etcd-servers=" + c.etcdURL(), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(c.Dir, "pki"), "--tls-cert-file=" + c.pkiFile("apiserver.crt"), "--tls-private-key-file=" + c.pkiFile("apiserver.key"),
		"--client-ca-file=" + c.pkiFile("ca.crt"), "--token-auth-file=" + c.pkiFile("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.246.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pkiFile("service-accounts.crt"), "--service-account-signing-key-file=" + c.pkiFile("service-accounts.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.pkiFile("kubelet-client.crt"), "--kubelet-client-key=" + c.pkiFile("kubelet-client.key"),
	}, c.APIServerFlags...)}
}

// StartSecondAPIServer starts another API server with the same etcd unless it is running, and waits until it is ready. Start and
// Stop do not manage it.
func (c *ControlPlane) StartSecondAPIServer(ctx context.Context, port int) (Process, error) {
	server := c.apiServer("kube-apiserver-2", port)
	if err := server.Start(); err != nil {
		return server, err
	}
	return server, waitReady(ctx, server, urlAt(port))
}

func waitReady(ctx context.Context, server Process, url string) error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	err := WaitUntil(ctx, time.Minute, "the API server to be ready", func(context.Context) (bool, error) {
		response, err := client.Get(url + "/readyz")
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%w; last lines of %s:\n%s", err, server.LogFile(), server.LastLines())
	}
	return nil
}

// prepare creates certificates, tokens and kubeconfigs, once.
func (c *ControlPlane) prepare() error {
	if _, err := os.Stat(c.Kubeconfig("admin")); err == nil {
		return nil
	}
	if err := c.writeCertificates(); err != nil {
		return err
	}
	allUsers := users
	for _, node := range append([]string{VMNodeName}, NodeNames...) {
		allUsers = append(allUsers, []string{"system:node:" + node, "system:nodes"})
	}
	var tokens strings.Builder
	for _, user := range allUsers {
		token := randomToken()
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, user[0], user[0], strings.Join(user[1:], ","))
		if err := c.writeKubeconfig(user[0], token); err != nil {
			return err
		}
	}
	return os.WriteFile(c.pkiFile("tokens.csv"), []byte(tokens.String()), 0o600)
}

// writeCertificates creates the certificates and keys of the authority and of servers.
func (c *ControlPlane) writeCertificates() error {
	if err := os.MkdirAll(filepath.Join(c.Dir, "pki"), 0o755); err != nil {
		return err
	}
	ca, err := authority.New()
	if err != nil {
		return err
	}
	pairs := map[string]authority.KeyPair{"ca": ca.KeyPair}
	for name, subject := range map[string]pkix.Name{
		"apiserver": {CommonName: "kube-apiserver"}, "service-accounts": {CommonName: "service-accounts"},
		"kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
	} {
		if pairs[name], err = ca.Issue(subject, "127.0.0.1", apiServiceIP, "kubernetes.default.svc"); err != nil {
			return err
		}
	}
	for name, pair := range pairs {
		if err := os.WriteFile(c.pkiFile(name+".crt"), []byte(pair.Certificate), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(c.pkiFile(name+".key"), []byte(pair.Key), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func randomToken() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

func (c *ControlPlane) writeKubeconfig(user, token string) error {
	ca, err := os.ReadFile(c.pkiFile("ca.crt"))
	if err != nil {
		return err
	}
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"embedded",
"clusters":[{"name":"embedded","cluster":{"server":%q,"certificate-authority-data":%q}}],
"users":[{"name":%[3]q,"user":{"token":%q}}],
"contexts":[{"name":"embedded","context":{"cluster":"embedded","user":%[3]q}}]}
`, c.URL(), encodeBase64(ca), user, token)
	return os.WriteFile(c.Kubeconfig(user), []byte(content), 0o600)
}
