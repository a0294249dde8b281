package manifest_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

const scripts = "../../manifests/admission-scripts.yaml"

const scriptsHeader = `# The programs that the CPI of this release runs in Pods which help machines: admission-policy.yaml allows no others. Apply it
# anew with each release, before the release is deployed. While two releases are in use, keep the former's under other keys
# (hold.former for hold). It is made by a test: UPDATE_GOLDEN=1 go test ./kube/manifest.
#
#   kubectl apply --namespace bosh -f manifests/admission-scripts.yaml
`

var _ = Describe("The programs that the admission policy allows", func() {
	It("are those of this release", func() {
		raw, err := yaml.Marshal(corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "bosh-cpi-scripts"}, Data: node.HelperPrograms(),
		})
		Expect(err).NotTo(HaveOccurred())
		want := scriptsHeader + string(raw)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			Expect(os.WriteFile(scripts, []byte(want), 0o644)).To(Succeed())
		}
		written, err := os.ReadFile(scripts)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(written)).To(Equal(want), "UPDATE_GOLDEN=1 go test ./kube/manifest writes it anew")
	})
})
