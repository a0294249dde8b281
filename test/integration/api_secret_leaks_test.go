package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// Each secret of the CPI contains a canary: a unique string that identifies the secret in an output.
const canaryPrefix = "c4nary-"

var canaryPattern = regexp.MustCompile(canaryPrefix + `[a-z-]+?-end`)

// canaryFor returns the canary for the secret with this name.
func canaryFor(name string) string { return canaryPrefix + name + "-end" }

// canaryEnv is an environment with a canary in each secret.
type canaryEnv struct {
	testEnv
	outputs []string // responses of calls, and their logs at debug level
}

// newCanaryEnv creates an environment with a canary in each secret of the configuration.
func newCanaryEnv(ctx context.Context) *canaryEnv {
	GinkgoHelper()
	c := &canaryEnv{testEnv: newTestEnv(ctx)}
	raw, err := os.ReadFile(strings.TrimSuffix(c.Config, ".json") + ".kubeconfig")
	Expect(err).NotTo(HaveOccurred())
	var kubeconfig map[string]any
	Expect(json.Unmarshal(raw, &kubeconfig)).To(Succeed())
	kubeconfig["users"] = []any{map[string]any{"name": "proxy", "user": map[string]any{"token": canaryFor("token")}}}
	inline, err := json.Marshal(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config, err := json.Marshal(map[string]any{
		"kubernetes": map[string]any{
			"kubeconfig": string(inline), "namespace": c.namespace, "node_image": director.NodeImage, "log": map[string]any{"level": "debug"},
			"stemcell": map[string]any{"registry": map[string]any{
				"repository": "registry.example.com/stemcells", "username": "bosh", "password": canaryFor("registry"),
				"pull_secret": map[string]any{"name": "stemcells", "username": "nodes", "password": canaryFor("pull-secret")},
			}},
			"timeouts": map[string]any{"create_vm": "5s", "attach_disk": "5s", "detach_disk": "5s", "delete_vm": "5s", "create_stemcell": "2s", "other": "5s", "request": "1s"},
		},
		"agent": map[string]any{
			"mbus":      "nats://nats:" + canaryFor("mbus") + "@10.0.0.6:4222",
			"blobstore": map[string]any{"provider": "dav", "options": map[string]any{"endpoint": "http://10.0.0.6:25250", "password": canaryFor("blobstore")}},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	path := strings.TrimSuffix(c.Config, ".json") + "-canaries.json"
	Expect(os.WriteFile(path, config, 0o600)).To(Succeed())
	c.Director = &director.Director{CPI: cpiPath, Config: path}
	return c
}

// recordCall makes the call, and records its response and its log. The call may fail.
func (c *canaryEnv) recordCall(ctx context.Context, method string, cpiConfig map[string]any, arguments ...any) {
	GinkgoHelper()
	callContext := map[string]any{"director_uuid": director.UUID, "request_id": "cpi-1"}
	maps.Copy(callContext, cpiConfig)
	request, err := json.Marshal(map[string]any{"method": method, "arguments": arguments, "api_version": 2, "context": callContext})
	Expect(err).NotTo(HaveOccurred())
	response, err := c.CallRaw(ctx, request)
	Expect(err).NotTo(HaveOccurred())
	raw, err := json.Marshal(response)
	Expect(err).NotTo(HaveOccurred())
	c.outputs = append(c.outputs, method+": "+string(raw)+response.Stderr)
}

// callAllMethods calls each method, in the order of a deployment.
func (c *canaryEnv) callAllMethods(ctx context.Context) {
	GinkgoHelper()
	image := "heavy://registry.example.com/stemcells@sha256:" + strings.Repeat("0", 64)
	agentEnv := map[string]any{"bosh": map[string]any{
		"password": canaryFor("env-password"), "mbus": map[string]any{"cert": map[string]any{"private_key": canaryFor("env-key")}},
		"blobstores": []any{map[string]any{"options": map[string]any{"secret_access_key": canaryFor("env-blobstore")}}},
	}}
	services := map[string]any{"services": []any{map[string]any{"ports": []any{80}}}}
	for _, call := range [][]any{
		{"info"},
		{"calculate_vm_cloud_properties", map[string]any{"cpu": 1, "ram": 64, "ephemeral_disk_size": 64}},
		{"create_stemcell", "/dev/null", map[string]any{"name": "s", "version": "1"}},
		{"create_vm", "one", image, services, dynamicNetwork(), []string{}, agentEnv},
		{"create_vm", "two", image, map[string]any{"memry": 1}, dynamicNetwork(), []string{}, agentEnv},
		{"has_vm", "agent-one"},
		{"set_vm_metadata", "agent-one", map[string]any{"deployment": "d", "job": "web"}},
		{"create_disk", 64, map[string]any{}, "agent-one"},
		{"attach_disk", "agent-one", "disk-none"},
		{"detach_disk", "agent-one", "disk-none"},
		{"get_disks", "agent-one"},
		{"has_disk", "disk-none"},
		{"set_disk_metadata", "disk-none", map[string]any{"deployment": "d"}},
		{"resize_disk", "disk-none", 128},
		{"update_disk", "disk-none", 128, map[string]any{}},
		{"snapshot_disk", "disk-none", map[string]any{}},
		{"delete_snapshot", "snapshot-none"},
		{"delete_disk", "disk-none"},
		{"reboot_vm", "agent-none"},
		{"delete_stemcell", image},
	} {
		method, _ := call[0].(string)
		c.recordCall(ctx, method, nil, call[1:]...)
	}
	c.recordCall(ctx, "has_vm", map[string]any{"agent": map[string]any{"mbus": "invalid URL " + canaryFor("cpi-config-mbus")}}, "agent-one")
	c.recordCall(ctx, "has_vm", map[string]any{"kubernetes": map[string]any{"kubeconfig": "invalid kubeconfig " + canaryFor("cpi-config-kubeconfig")}}, "agent-one")
	c.recordCall(ctx, "has_vm", map[string]any{"kubernetes": map[string]any{"stemcell": map[string]any{"registry": map[string]any{"password": canaryFor("cpi-config-registry")}}}}, "agent-one")
	c.recordCall(ctx, "has_vm", map[string]any{"agent": map[string]any{"mbus": "nats://a:1", "blobstore": map[string]any{"options": map[string]any{"password": canaryFor("cpi-config-blobstore")}}}}, "agent-one")
}

// findCanaries returns the canaries in the recorded outputs, and in all objects except Secrets, including Events.
func (c *canaryEnv) findCanaries(ctx context.Context) []string {
	GinkgoHelper()
	outputs := slices.Clone(c.outputs)
	kinds := map[string]func() (any, error){
		"pods":     func() (any, error) { return cluster.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{}) },
		"events":   func() (any, error) { return cluster.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{}) },
		"services": func() (any, error) { return cluster.CoreV1().Services(c.namespace).List(ctx, metav1.ListOptions{}) },
		"pvcs": func() (any, error) {
			return cluster.CoreV1().PersistentVolumeClaims(c.namespace).List(ctx, metav1.ListOptions{})
		},
		"configmaps": func() (any, error) { return cluster.CoreV1().ConfigMaps(c.namespace).List(ctx, metav1.ListOptions{}) },
		"podtemplates": func() (any, error) {
			return cluster.CoreV1().PodTemplates(c.namespace).List(ctx, metav1.ListOptions{})
		},
	}
	for kind, list := range kinds {
		items, err := list()
		Expect(err).NotTo(HaveOccurred())
		raw, err := json.Marshal(items)
		Expect(err).NotTo(HaveOccurred())
		outputs = append(outputs, kind+": "+string(raw))
	}
	found := []string{}
	for _, output := range outputs {
		source, _, _ := strings.Cut(output, ":")
		for _, canary := range canaryPattern.FindAllString(output+decodeBase64(output), -1) {
			found = append(found, source+" contains "+canary)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// base64Pattern matches strings that can be a canary in base64.
var base64Pattern = regexp.MustCompile(`[A-Za-z0-9+/]{12,}={0,2}`)

// decodeBase64 returns the decoded base64 parts of s.
func decodeBase64(s string) string {
	var decoded strings.Builder
	for _, encoded := range base64Pattern.FindAllString(s, -1) {
		if raw, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			decoded.Write(raw)
		}
	}
	return decoded.String()
}

var _ = Describe("Secrets of the CPI", long, func() {
	It("are not in its responses, its log at debug level, or any object except Secrets, over the life of a VM", func(ctx context.Context) {
		c := newCanaryEnv(ctx)
		proxy.Reset(nil)
		c.callAllMethods(ctx)
		// The calls used the secrets.
		settings, err := cluster.CoreV1().Secrets(c.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(settings.Data["settings.json"])).To(And(
			ContainSubstring(canaryFor("mbus")), ContainSubstring(canaryFor("blobstore")), ContainSubstring(canaryFor("env-key"))))
		Expect(c.listCPIEvents(ctx)).To(ContainElements(matchEvent("Normal", "Created", "create_vm"), matchEvent("Warning", "AttachFailed", "disk-none")))
		Expect(c.findCanaries(ctx)).To(BeEmpty())
	})

	for name, fault := range map[string]apiproxy.Fault{
		"gets a 401":               apiproxy.ProxyError(http.StatusUnauthorized),
		"gets a 403":               apiproxy.ProxyError(http.StatusForbidden),
		"gets a 500":               apiproxy.ProxyError(http.StatusInternalServerError),
		"gets a 404 from a proxy":  apiproxy.ProxyError(http.StatusNotFound),
		"loses all connections":    func(int, http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"gets an invalid response": func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) { fmt.Fprint(w, "{") },
	} {
		It("are not in errors if the CPI "+name, func(ctx context.Context) {
			c := newCanaryEnv(ctx)
			proxy.Reset(fault)
			c.callAllMethods(ctx)
			proxy.Reset(nil)
			Expect(c.findCanaries(ctx)).To(BeEmpty())
		})
	}

	It("would be found by this test in Events, Pods and responses", func(ctx context.Context) {
		c := newCanaryEnv(ctx)
		c.recordCall(ctx, "create_vm", nil, "one", stemcellCID, map[string]any{"annotations": map[string]any{
			"plain": canaryFor("annotation"), "encoded": base64.StdEncoding.EncodeToString([]byte(canaryFor("encoded-annotation"))),
		}}, dynamicNetwork(), []string{}, map[string]any{})
		c.recordCall(ctx, "has_vm", nil, canaryFor("vm"))
		c.recordCall(ctx, "attach_disk", nil, "agent-one", canaryFor("disk"))
		Expect(c.findCanaries(ctx)).To(ContainElements("events contains "+canaryFor("disk"),
			"pods contains "+canaryFor("annotation"), "pods contains "+canaryFor("encoded-annotation"), "has_vm contains "+canaryFor("vm")))
	})
})
