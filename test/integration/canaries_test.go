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

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

// Each secret that the CPI is given has its own mark, so that a find says which it was.
const canaryMark = "c4nary-"

var canary = regexp.MustCompile(canaryMark + `[a-z-]+?-end`)

// planted is the mark of a secret of this name.
func planted(name string) string { return canaryMark + name + "-end" }

// canaries are a world whose every secret is marked.
type canaries struct {
	world
	told []string // all that calls have said: answers, and the log at its most talkative
}

func newCanaries(ctx context.Context) *canaries {
	GinkgoHelper()
	c := &canaries{world: newWorld(ctx)}
	raw, err := os.ReadFile(strings.TrimSuffix(c.Config, ".json") + ".kubeconfig")
	Expect(err).NotTo(HaveOccurred())
	var kubeconfig map[string]any
	Expect(json.Unmarshal(raw, &kubeconfig)).To(Succeed())
	kubeconfig["users"] = []any{map[string]any{"name": "proxy", "user": map[string]any{"token": planted("token")}}}
	inline, err := json.Marshal(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config, err := json.Marshal(map[string]any{
		"kubernetes": map[string]any{"kubeconfig": string(inline), "namespace": c.namespace},
		"agent": map[string]any{
			"mbus":      "nats://nats:" + planted("mbus") + "@10.0.0.6:4222",
			"blobstore": map[string]any{"provider": "dav", "options": map[string]any{"endpoint": "http://10.0.0.6:25250", "password": planted("blobstore")}},
		},
		"stemcell": map[string]any{"registry": map[string]any{
			"repository": "registry.example.com/stemcells", "username": "bosh", "password": planted("registry"),
			"pull_secret": map[string]any{"name": "stemcells", "username": "nodes", "password": planted("pull-secret")},
		}},
		"log":      map[string]any{"level": "debug"},
		"timeouts": map[string]any{"create_vm": "5s", "attach_disk": "5s", "detach_disk": "5s", "delete_vm": "5s", "create_stemcell": "2s", "other": "5s", "request": "1s"},
	})
	Expect(err).NotTo(HaveOccurred())
	path := strings.TrimSuffix(c.Config, ".json") + "-canaries.json"
	Expect(os.WriteFile(path, config, 0o600)).To(Succeed())
	c.Director = &director.Director{CPI: program, Config: path}
	return c
}

// hears makes the call, whatever becomes of it, and keeps what it says.
func (c *canaries) hears(ctx context.Context, method string, cpiConfig map[string]any, arguments ...any) {
	GinkgoHelper()
	sent := map[string]any{"director_uuid": director.UUID, "request_id": "cpi-1"}
	maps.Copy(sent, cpiConfig)
	request, err := json.Marshal(map[string]any{"method": method, "arguments": arguments, "api_version": 2, "context": sent})
	Expect(err).NotTo(HaveOccurred())
	response, err := c.Raw(ctx, request)
	Expect(err).NotTo(HaveOccurred())
	answer, err := json.Marshal(response)
	Expect(err).NotTo(HaveOccurred())
	c.told = append(c.told, method+": "+string(answer)+response.Stderr)
}

// life makes a call of each method, as a director does over a deployment's life.
func (c *canaries) life(ctx context.Context) {
	GinkgoHelper()
	image := "heavy://registry.example.com/stemcells@sha256:" + strings.Repeat("0", 64)
	env := map[string]any{"bosh": map[string]any{
		"password": planted("env-password"), "mbus": map[string]any{"cert": map[string]any{"private_key": planted("env-key")}},
		"blobstores": []any{map[string]any{"options": map[string]any{"secret_access_key": planted("env-blobstore")}}},
	}}
	services := map[string]any{"services": []any{map[string]any{"ports": []any{80}}}}
	for _, call := range [][]any{
		{"info"},
		{"calculate_vm_cloud_properties", map[string]any{"cpu": 1, "ram": 64, "ephemeral_disk_size": 64}},
		{"create_stemcell", "/dev/null", map[string]any{"name": "s", "version": "1"}},
		{"create_vm", "one", image, services, onDynamic(), []string{}, env},
		{"create_vm", "two", image, map[string]any{"memry": 1}, onDynamic(), []string{}, env},
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
		{"create_network", map[string]any{"type": "manual", "range": "10.9.0.0/16", "cloud_properties": map[string]any{}}},
		{"delete_network", "none"},
		{"delete_stemcell", image},
	} {
		method, _ := call[0].(string)
		c.hears(ctx, method, nil, call[1:]...)
	}
	c.hears(ctx, "has_vm", map[string]any{"agent": map[string]any{"mbus": "no URL " + planted("cpi-config-mbus")}}, "agent-one")
	c.hears(ctx, "has_vm", map[string]any{"kubernetes": map[string]any{"kubeconfig": "no kubeconfig " + planted("cpi-config-kubeconfig")}}, "agent-one")
	c.hears(ctx, "has_vm", map[string]any{"stemcell": map[string]any{"registry": map[string]any{"password": planted("cpi-config-registry")}}}, "agent-one")
	c.hears(ctx, "has_vm", map[string]any{"agent": map[string]any{"mbus": "nats://a:1", "blobstore": map[string]any{"options": map[string]any{"password": planted("cpi-config-blobstore")}}}}, "agent-one")
}

// finds are the marks in what was said, and in all objects that are no Secrets, Events among them.
func (c *canaries) finds(ctx context.Context) []string {
	GinkgoHelper()
	said := slices.Clone(c.told)
	kinds := map[string]func() (any, error){
		"pods":     func() (any, error) { return cluster.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{}) },
		"events":   func() (any, error) { return cluster.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{}) },
		"services": func() (any, error) { return cluster.CoreV1().Services(c.namespace).List(ctx, metav1.ListOptions{}) },
		"claims": func() (any, error) {
			return cluster.CoreV1().PersistentVolumeClaims(c.namespace).List(ctx, metav1.ListOptions{})
		},
		"maps": func() (any, error) { return cluster.CoreV1().ConfigMaps(c.namespace).List(ctx, metav1.ListOptions{}) },
		"templates": func() (any, error) {
			return cluster.CoreV1().PodTemplates(c.namespace).List(ctx, metav1.ListOptions{})
		},
	}
	for kind, list := range kinds {
		items, err := list()
		Expect(err).NotTo(HaveOccurred())
		raw, err := json.Marshal(items)
		Expect(err).NotTo(HaveOccurred())
		said = append(said, kind+": "+string(raw))
	}
	found := []string{}
	for _, text := range said {
		where, _, _ := strings.Cut(text, ":")
		for _, mark := range canary.FindAllString(text+decoded(text), -1) {
			found = append(found, where+" tells "+mark)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// base64Text is long enough to hold a mark.
var base64Text = regexp.MustCompile(`[A-Za-z0-9+/]{12,}={0,2}`)

// decoded is what stands in the text in base64.
func decoded(text string) string {
	var all strings.Builder
	for _, each := range base64Text.FindAllString(text, -1) {
		if raw, err := base64.StdEncoding.DecodeString(each); err == nil {
			all.Write(raw)
		}
	}
	return all.String()
}

var _ = Describe("No secret that the CPI is given", func() {
	It("is in its answers, its log at debug, or any object that is no Secret, over the life of a machine", func(ctx context.Context) {
		c := newCanaries(ctx)
		proxy.Reset(nil)
		c.life(ctx)
		// They have arrived where they belong, so that there was something to find.
		settings, err := cluster.CoreV1().Secrets(c.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(settings.Data["settings.json"])).To(And(
			ContainSubstring(planted("mbus")), ContainSubstring(planted("blobstore")), ContainSubstring(planted("env-key"))))
		Expect(c.left(ctx)).To(ContainElements(told("Normal", "Created", "create_vm"), told("Warning", "AttachFailed", "disk-none")))
		Expect(c.finds(ctx)).To(BeEmpty())
	})

	for name, fault := range map[string]apiproxy.Fault{
		"is refused with 401":     apiproxy.Foreign(http.StatusUnauthorized),
		"is refused with 403":     apiproxy.Foreign(http.StatusForbidden),
		"is answered with 500":    apiproxy.Foreign(http.StatusInternalServerError),
		"is answered by no API":   apiproxy.Foreign(http.StatusNotFound),
		"loses each connection":   func(int, http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"gets no JSON for answer": func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) { fmt.Fprint(w, "{") },
	} {
		It("is in an error when the CPI "+name, func(ctx context.Context) {
			c := newCanaries(ctx)
			proxy.Reset(fault)
			c.life(ctx)
			proxy.Reset(nil)
			Expect(c.finds(ctx)).To(BeEmpty())
		})
	}

	It("would go unnoticed", func(ctx context.Context) {
		c := newCanaries(ctx)
		c.hears(ctx, "create_vm", nil, "one", stemcellCID, map[string]any{"annotations": map[string]any{
			"plain": planted("annotation"), "encoded": base64.StdEncoding.EncodeToString([]byte(planted("encoded-annotation"))),
		}}, onDynamic(), []string{}, map[string]any{})
		c.hears(ctx, "has_vm", nil, planted("vm"))
		c.hears(ctx, "attach_disk", nil, "agent-one", planted("disk"))
		Expect(c.finds(ctx)).To(ContainElements("events tells "+planted("disk"),
			"pods tells "+planted("annotation"), "pods tells "+planted("encoded-annotation"), "has_vm tells "+planted("vm")))
	})
})
