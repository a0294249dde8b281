package cluster

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

const namespace = "bosh"

// newCluster returns a cluster with an API server in memory that allows everything.
func newCluster() (*memoryapi.Server, *Cluster) {
	GinkgoHelper()
	api := memoryapi.New()
	api.Simulate = func(obj *memoryapi.Object) bool {
		if obj.GetKind() == "SelfSubjectAccessReview" && obj.Object["reviewed"] == nil {
			obj.Object["reviewed"] = true
			return unstructured.SetNestedField(obj.Object, true, "status", "allowed") == nil
		}
		return false
	}
	client, err := kube.NewForConfig(api.Config(), namespace, 0)
	Expect(err).NotTo(HaveOccurred())
	c, err := Open(client, api.Config(), "lab")
	Expect(err).NotTo(HaveOccurred())
	return api, c
}

var _ = Describe("The inspection of a cluster", func() {
	findings := func(ctx context.Context, c *Cluster) (map[string]string, *Inspection) {
		GinkgoHelper()
		inspection, err := c.Inspect(ctx)
		Expect(err).NotTo(HaveOccurred())
		values := map[string]string{}
		for _, finding := range inspection.Findings {
			values[finding.Name] = finding.Value
		}
		return values, inspection
	}

	It("finds what a director needs", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("namespaces", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{PodSecurityLabel: "privileged"}}})
		api.Add("serviceaccounts", namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: Account}})
		for i, name := range []string{"old", "fast"} {
			api.Add("storageclasses", "", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(i+1), 0),
				Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "csi"})
		}
		api.Groups = []metav1.APIGroup{{Name: "crd.projectcalico.org"}}
		pool := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
			"metadata": map[string]any{"name": "bosh"}, "spec": map[string]any{"cidr": "10.1.0.0/16", "nodeSelector": "!all()"}}}
		api.Add("ippools", "", pool)
		api.Add("nodes", "", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelArchStable: "amd64"}}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}})
		api.Add("servicecidrs", "", &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}})
		api.Add("services", "default", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 443}}}})
		api.Add("services", "kube-system", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "dns", Labels: map[string]string{"k8s-app": "kube-dns"}},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}})
		values, inspection := findings(ctx, c)
		Expect(values).To(And(
			HaveKeyWithValue("namespace", "bosh (pod-security.kubernetes.io/enforce=privileged)"),
			HaveKeyWithValue("permissions", "sufficient"),
			HaveKeyWithValue("nodes", "1 (amd64)"),
			HaveKeyWithValue("storage class", "fast (provisioner csi)"),
			HaveKeyWithValue("network plugin", "Calico (API group crd.projectcalico.org), assigns requested addresses"),
			HaveKeyWithValue("reserved ranges", "10.1.0.0/16 (IPPool bosh)"),
			HaveKeyWithValue("Pod ranges", "10.244.0.0/24 (Pod CIDRs of the nodes)"),
			HaveKeyWithValue("Service ranges", "10.96.0.0/16 (ServiceCIDR kubernetes)"),
			HaveKeyWithValue("in-cluster API", "https://10.96.0.1:443"),
			HaveKeyWithValue("cluster DNS", "10.96.0.10 (Service kube-system/dns)"),
		))
		Expect(inspection.ReservedRanges).To(HaveLen(1))
	})

	It("reports that no node has the architecture of BOSH's stemcells", func(ctx context.Context) {
		api, c := newCluster()
		for _, name := range []string{"a", "b"} {
			api.Add("nodes", "", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelArchStable: "arm64"}}})
		}
		values, _ := findings(ctx, c)
		Expect(values).To(HaveKeyWithValue("nodes", HavePrefix("2 (arm64); BOSH publishes stemcells for amd64 only")))
	})

	It("reports that no StorageClass is the default", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("storageclasses", "", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		values, inspection := findings(ctx, c)
		Expect(values).To(HaveKeyWithValue("storage class", HavePrefix("no default; annotate a StorageClass")))
		Expect(inspection.NoDefaultStorageClass).To(BeTrue())
	})

	It("finds the range of the API server before others", func(ctx context.Context) {
		api, c := newCluster()
		for name, cidr := range map[string]string{"added": "10.97.0.0/16", "kubernetes": "10.96.0.0/16", "more": "10.98.0.0/16"} {
			api.Add("servicecidrs", "", &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}})
		}
		_, inspection := findings(ctx, c)
		Expect(inspection.ServiceRanges).To(HaveLen(3))
		Expect(inspection.ServiceRanges[0].String()).To(Equal("10.96.0.0/16"))
	})

	It("finds the DNS of OpenShift", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("services", "openshift-dns", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "dns-default"}, Spec: corev1.ServiceSpec{ClusterIP: "172.30.0.10"}})
		values, inspection := findings(ctx, c)
		Expect(values).To(HaveKeyWithValue("cluster DNS", "172.30.0.10 (Service openshift-dns/dns-default)"))
		Expect(inspection.DNSAddress).To(Equal("172.30.0.10"))
	})

	It("reports what is unknown in an empty cluster", func(ctx context.Context) {
		_, c := newCluster()
		values, inspection := findings(ctx, c)
		Expect(values).To(And(
			HaveKeyWithValue("namespace", "bosh (does not exist yet)"),
			HaveKeyWithValue("storage class", HavePrefix("none; install a CSI driver with a StorageClass")),
			HaveKeyWithValue("network plugin", HavePrefix("unknown: no DaemonSet, API group or node")),
			HaveKeyWithValue("reserved ranges", "unknown: detected only with Calico"),
			HaveKeyWithValue("Service ranges", "unknown: the cluster has no ServiceCIDRs"),
			HaveKeyWithValue("cluster DNS", HavePrefix("unknown: no Service kube-dns")),
		))
		Expect(inspection.Namespace).To(Equal(Namespace{Known: true}))
	})

	It("reports missing permissions, and continues", func(ctx context.Context) {
		api, c := newCluster()
		api.Simulate = nil
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "storageclasses") {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		}
		values, inspection := findings(ctx, c)
		Expect(values).To(And(HaveKeyWithValue("permissions", ContainSubstring("missing: create namespaces")), HaveKeyWithValue("storage class", HavePrefix("unknown: "))))
		Expect(inspection.MissingPermissions).NotTo(BeEmpty())
	})
})

var _ = Describe("A free address", func() {
	It("of a Service is not in use", func(ctx context.Context) {
		api, c := newCluster()
		for _, address := range []string{"10.96.0.60", "10.96.0.61"} {
			api.Add("ipaddresses", "", &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: address}})
		}
		inspection := &Inspection{ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/26")}}
		Expect(c.FindFreeServiceAddress(ctx, inspection)).To(Equal("10.96.0.62"))
	})

	It("of a Service cannot be chosen if the range is full or unknown", func(ctx context.Context) {
		_, c := newCluster()
		_, err := c.FindFreeServiceAddress(ctx, &Inspection{ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/28")}})
		Expect(err).To(MatchError("no free Service address in 10.96.0.0/28; set --address"))
		_, err = c.FindFreeServiceAddress(ctx, &Inspection{})
		Expect(err).To(MatchError(ContainSubstring("set --address")))
	})

	It("of a Pod is not in use", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("pods", "other", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{PodIP: "10.1.0.6"}})
		reserved := network.AddressRange{Prefix: netip.MustParsePrefix("10.1.0.0/29")}
		Expect(c.FindFreePodAddress(ctx, reserved, 6)).To(Equal("10.1.0.7"))
		_, err := c.FindFreePodAddress(ctx, reserved, 8)
		Expect(err).To(MatchError(ContainSubstring("no free Pod address in 10.1.0.0/29")))
	})
})

var _ = Describe("Objects of up", func() {
	role := func(verb string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": "bosh-cpi", "namespace": namespace},
			"rules": []any{map[string]any{"verbs": []any{verb}}},
		}}
	}
	newNamespace := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	}

	It("are created, updated and deleted", func(ctx context.Context) {
		api, c := newCluster()
		Expect(c.Apply(ctx, role("get"))).To(Equal("created"))
		Expect(c.Apply(ctx, role("get"))).To(Equal("unchanged"))
		Expect(c.Apply(ctx, role("list"))).To(Equal("updated"))
		Expect(c.Delete(ctx, role("list"))).To(Equal("deleted"))
		Expect(c.Delete(ctx, role("list"))).To(Equal("does not exist"))
		Expect(api.Names("roles")).To(BeEmpty())
		_, err := c.Apply(ctx, &unstructured.Unstructured{Object: map[string]any{"kind": "Widget"}})
		Expect(err).To(MatchError(ContainSubstring("unsupported kind Widget")))
	})

	It("are kept if another client created them", func(ctx context.Context) {
		api, c := newCluster()
		existing := role("get")
		api.Add("roles", namespace, existing)
		Expect(c.Delete(ctx, role("get"))).To(Equal("kept: not created by `up`"))
	})

	It("include policies, which are replaced again after another client changed them", func(ctx context.Context) {
		policy := func(action string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
				"metadata": map[string]any{"name": "bosh-cpi-shape"}, "spec": map[string]any{"failurePolicy": action}}}
		}
		api, c := newCluster()
		Expect(c.Apply(ctx, policy("Ignore"))).To(Equal("created"))
		updates := 0
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			if updates++; updates == 1 {
				w.WriteHeader(http.StatusConflict)
				_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}`))
				return true
			}
			_, _ = io.Copy(w, r.Body)
			return true
		}
		Expect(c.Apply(ctx, policy("Fail"))).NotTo(BeEmpty())
		Expect(updates).To(Equal(2))
	})

	It("include a namespace that admits VM Pods, and is kept while it has Pods", func(ctx context.Context) {
		api, c := newCluster()
		Expect(c.Apply(ctx, newNamespace())).To(Equal("created"))
		var stored corev1.Namespace
		api.Get("namespaces", "", namespace, &stored)
		Expect(stored.Labels).To(HaveKeyWithValue(PodSecurityLabel, PodSecurityPrivileged))
		api.Add("pods", namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
		Expect(c.Delete(ctx, newNamespace())).To(Equal("kept: it contains pods (1)"))
	})

	It("include a label of an existing namespace only on request", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("namespaces", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{PodSecurityLabel: "restricted"}}})
		Expect(c.Apply(ctx, newNamespace())).To(Equal("unchanged"))
		Expect(c.SetPodSecurity(ctx, "baseline", "privileged")).To(Equal("restricted"), "it has another value")
		Expect(c.SetPodSecurity(ctx, "restricted", "privileged")).To(Equal("restricted"))
		Expect(c.SetPodSecurity(ctx, "privileged", "")).To(Equal("privileged"))
		var stored corev1.Namespace
		api.Get("namespaces", "", namespace, &stored)
		Expect(stored.Labels).NotTo(HaveKey(PodSecurityLabel))
	})

	It("include tokens", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("serviceaccounts", namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		Expect(c.WaitForDefaultServiceAccount(ctx)).To(Succeed())
		api.Add("secrets", namespace, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: TokenSecret},
			Data: map[string][]byte{"token": []byte("t"), "ca.crt": []byte("ca")}})
		token, ca, err := c.WaitForSecretToken(ctx, TokenSecret)
		Expect(err).NotTo(HaveOccurred())
		Expect(token + string(ca)).To(Equal("tca"))
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/token") {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
				"status": {"token": "short", "expirationTimestamp": "2026-01-01T00:00:00Z"}}`))
			return true
		}
		token, expires, err := c.RequestToken(ctx, Account, time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(token).To(Equal("short"))
		Expect(expires.Year()).To(Equal(2026))
	})
})

var _ = Describe("The identity of a cluster", func() {
	It("is the UID of a system namespace, or the server without permission to get it", func(ctx context.Context) {
		api, c := newCluster()
		api.Add("namespaces", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u"}})
		Expect(c.Identify(ctx)).To(And(HaveField("UID", "u"), HaveField("Context", "lab")))
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		}
		Expect(c.Identify(ctx)).To(And(HaveField("UID", ""), HaveField("Server", c.config.Host)))
	})

	It("includes the fingerprints of CA certificates", func() {
		block := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString([]byte("x")) + "\n-----END CERTIFICATE-----\n"
		Expect(Fingerprints([]byte(block + block))).To(HaveLen(1))
	})
})
