package stemcells

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestStemcell(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "stemcell methods")
}

var _ = Describe("Stemcells in the cluster", func() {
	const light = "registry.example.org/stemcell@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	var api *memoryapi.Server
	BeforeEach(func() {
		api = memoryapi.New()
	})
	newSession := func(ctx context.Context, director string, options stemcell.Options) *Session {
		GinkgoHelper()
		client, err := kube.NewForConfig(api.Config(), "bosh", 0)
		Expect(err).NotTo(HaveOccurred())
		return &Session{Options: options, Connect: func() error { return nil }, Call: &call.Call{
			Ctx: ctx, Client: client, ID: call.NewID(), Director: director, Log: slog.New(slog.DiscardHandler),
		}}
	}
	withCredentials := func(password string) stemcell.Options {
		return stemcell.Options{Registry: stemcell.Registry{Repository: "registry.example.org/stemcell", Username: "u", Password: stemcell.Secret(password),
			PullSecret: stemcell.PullSecret{Name: "pull"}}}
	}

	It("get a pull Secret with the current credentials of their registry", func(ctx context.Context) {
		for _, password := range []string{"first", "first", "second"} {
			s := newSession(ctx, "d", withCredentials(password))
			Expect(s.EnsurePullSecret(s.Options, light)).To(Succeed())
		}
		secrets := api.Names("secrets")
		Expect(secrets).To(HaveLen(1))
		Expect(call.PullSecrets(withCredentials("second"), light)).To(ConsistOf(corev1.LocalObjectReference{Name: secrets[0]}))
		var secret corev1.Secret
		api.Get("secrets", "bosh", secrets[0], &secret)
		Expect(string(secret.Data[corev1.DockerConfigJsonKey])).To(ContainSubstring("second"))
	})

	It("do not change a Secret that the CPI did not create", func(ctx context.Context) {
		s := newSession(ctx, "d", withCredentials("p"))
		references, err := call.PullSecrets(s.Options, light)
		Expect(err).NotTo(HaveOccurred())
		api.Add("secrets", "bosh", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: references[0].Name}})
		Expect(s.EnsurePullSecret(s.Options, light)).To(Satisfy(call.CodeInvalidConfig.Is))
	})

	It("do not fail if the image of bosh-node cannot be pushed, because nodes may have it", func(ctx context.Context) {
		var log bytes.Buffer
		s := newSession(ctx, "d", stemcell.Options{Registry: stemcell.Registry{Repository: "127.0.0.1:1/bosh", Insecure: true}})
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.NodeImage = stemcell.NodeImage{Store: stemcell.Store{Options: s.Options}}
		s.NodeImage.Layout, _ = stemcells.NodeImage(GinkgoT().TempDir(), "ghcr.test/bosh-node")
		s.EnsureNodeImage()
		Expect(log.String()).To(And(ContainSubstring("cannot push the image of bosh-node"), ContainSubstring("connection refused")))
	})

	It("are not deleted while a VM uses their image", func(ctx context.Context) {
		heavy := stemcell.Options{Registry: stemcell.Registry{Repository: "registry.example.org/bosh"}}.SampleCID()
		Expect(stemcell.IsHeavy(heavy)).To(BeTrue())
		vm := manifest.VM{Name: "agent-one", Namespace: "bosh", Director: "d", Stemcell: heavy}.Pod()
		api.Add("pods", "bosh", vm.Pod)
		Expect(newSession(ctx, "d", stemcell.Options{}).Delete(heavy)).To(And(
			Satisfy(call.CodeStemcellInUse.Is), MatchError(ContainSubstring("VM agent-one"))))
	})
})
