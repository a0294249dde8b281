package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("The pull Secret", func() {
	It("is updated in place with new credentials, so that it exists at any time", func(ctx context.Context) {
		env := newTestEnv(ctx)
		createVMWithPassword := func(agent, password string) *corev1.Secret {
			GinkgoHelper()
			env.Director = env.directorWithConfig("stemcell", map[string]any{"registry": map[string]any{"repository": "registry.example.com/stemcell",
				"pull_secret": map[string]any{"name": "stemcells", "username": "nodes", "password": password}}})
			env.createVM(ctx, agent)
			secret, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, "stemcells", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return secret
		}
		first := createVMWithPassword("one", "old")
		renewed := createVMWithPassword("two", "new")
		Expect(renewed.UID).To(Equal(first.UID))
		Expect(string(renewed.Data[corev1.DockerConfigJsonKey])).To(SatisfyAll(ContainSubstring("new"), Not(ContainSubstring("old"))))
	})
})
