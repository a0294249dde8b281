package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

var _ = Describe("A node that requires the registry for each start of a container", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) { env, vm, disk = newTestEnvWithDisk(ctx) })

	It("does not block detach_disk while the registry does not respond", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/unpulled", new("dial tcp 10.0.0.1:443: i/o timeout"))).To(Succeed())
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	It("makes attach_disk fail early if the registry does not have the image, and no objects remain", func(ctx context.Context) {
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, map[string]string{"test/waiting": "ErrImagePull", "test/message": "registry.example.com/stemcell: not found"})
			next.ServeHTTP(rw, r)
		})
		Expect(env.mustFail(ctx, "attach_disk", vm, disk).Message).To(And(
			ContainSubstring("registry.example.com/stemcell: not found"), Not(ContainSubstring("timed out"))))
		Expect(env.listObjects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))
	})
})

var _ = Describe("A node with a full disk", func() {
	It("rejects an attachment Pod, which attach_disk reports, and accepts it after the disk has space", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		attachment := disk + "-attachment"
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, map[string]string{"test/hold": "until the node rejects the Pod"})
			next.ServeHTTP(rw, r)
		})
		go func() {
			defer GinkgoRecover()
			rejected := []byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: ephemeral-storage."}}`)
			var last types.UID
			for range 2 { // attach_disk creates the Pod once more
				Eventually(func(g Gomega) {
					pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, attachment, metav1.GetOptions{})
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(pod.UID).NotTo(Equal(last))
					last = pod.UID
				}).WithContext(ctx).Should(Succeed())
				_, err := cluster.CoreV1().Pods(env.namespace).Patch(ctx, attachment, types.MergePatchType, rejected, metav1.PatchOptions{}, "status")
				Expect(err).NotTo(HaveOccurred())
			}
		}()
		Expect(env.mustFail(ctx, "attach_disk", vm, disk).Message).To(ContainSubstring("The node was low on resource: ephemeral-storage"))
		proxy.Reset(nil)
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
	})
})

// annotateNewPod adds annotations to the Pod in a request that creates a Pod. It ignores other requests.
func annotateNewPod(r *http.Request, annotations map[string]string) {
	defer GinkgoRecover()
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") {
		return
	}
	raw, err := io.ReadAll(r.Body)
	Expect(err).NotTo(HaveOccurred())
	var pod corev1.Pod
	_, _, err = scheme.Codecs.UniversalDeserializer().Decode(raw, nil, &pod)
	Expect(err).NotTo(HaveOccurred())
	pod.APIVersion, pod.Kind = "v1", "Pod"
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, annotations)
	raw, err = json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
}
