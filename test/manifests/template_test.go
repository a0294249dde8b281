package manifests

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/agentsettings"
)

var _ = Describe("The job's templates", func() {
	withAgent := func(properties map[string]any) map[string]any {
		merged := map[string]any{"agent": map[string]any{"mbus": "nats://10.0.0.6:4222"}}
		maps.Copy(merged, properties)
		return merged
	}
	agentBlobstore := func(ctx context.Context, properties map[string]any) agentsettings.Blobstore {
		GinkgoHelper()
		return mustRender(ctx, withAgent(map[string]any{"blobstore": properties})).config().Agent.Blobstore
	}

	It("require only the URL of the message bus", func(ctx context.Context) {
		rendered := mustRender(ctx, withAgent(nil))
		rendered.expectScript(ctx)
		Expect(rendered.config().Agent).To(Equal(agentsettings.Options{Mbus: "nats://10.0.0.6:4222", NTP: []string{}}))
		_, err := render(ctx, map[string]any{})
		Expect(err).To(MatchError(ContainSubstring("agent.mbus")))
	})

	It("configure a dav blobstore for agents, with TLS if it has a CA certificate", func(ctx context.Context) {
		dav := map[string]any{"provider": "dav", "address": "10.0.0.6", "agent": map[string]any{"user": "agent", "password": "secret"}}
		Expect(agentBlobstore(ctx, dav)).To(Equal(agentsettings.Blobstore{Provider: "dav", Options: map[string]any{
			"endpoint": "http://10.0.0.6:25250", "user": "agent", "password": "secret",
		}}))
		dav["tls"] = map[string]any{"cert": map[string]any{"ca": "authority"}}
		Expect(agentBlobstore(ctx, dav).Options).To(Equal(map[string]any{
			"endpoint": "https://10.0.0.6:25250", "user": "agent", "password": "secret",
			"tls": map[string]any{"cert": map[string]any{"ca": "authority"}},
		}))
	})

	It("configure no account for a dav blobstore with signed URLs", func(ctx context.Context) {
		Expect(agentBlobstore(ctx, map[string]any{"provider": "dav", "address": "10.0.0.6", "enable_signed_urls": true}).Options).
			To(Equal(map[string]any{"endpoint": "http://10.0.0.6:25250"}))
	})

	It("configure a local blobstore for the agent of create-env", func(ctx context.Context) {
		Expect(agentBlobstore(ctx, map[string]any{"provider": "local", "path": "/var/vcap/blobs"})).To(Equal(agentsettings.Blobstore{
			Provider: "local", Options: map[string]any{"blobstore_path": "/var/vcap/blobs"},
		}))
	})

	DescribeTable("do not pass the director's account for a cloud's blobstore to agents, because agents get accounts in their env",
		func(ctx context.Context, provider string) {
			rendered := mustRender(ctx, withAgent(map[string]any{"blobstore": map[string]any{
				"provider": provider, "bucket_name": "director",
				"access_key_id": "director", "secret_access_key": "secret", "json_key": "secret",
			}}))
			Expect(rendered.config().Agent.Blobstore).To(Equal(agentsettings.Blobstore{}))
			Expect(rendered["config/cpi.json"]).NotTo(ContainSubstring("secret"))
		},
		Entry("s3", "s3"), Entry("gcs", "gcs"), Entry("azure-storage", "azure-storage"), Entry("alioss", "alioss"))

	It("pass each property below kubernetes to the CPI, but no property without a value", func(ctx context.Context) {
		settings := map[string]any{}
		for _, name := range jobProperties() {
			if path, own := strings.CutPrefix(name, "kubernetes."); own {
				Expect(unstructured.SetNestedField(settings, "value of "+name, strings.Split(path, ".")...)).To(Succeed())
			}
		}
		var config map[string]any
		Expect(json.Unmarshal([]byte(mustRender(ctx, withAgent(map[string]any{"kubernetes": settings}))["config/cpi.json"]), &config)).To(Succeed())
		Expect(config["kubernetes"]).To(Equal(settings))
		Expect(mustRender(ctx, withAgent(nil))["config/cpi.json"]).NotTo(Or(ContainSubstring("node_image"), ContainSubstring("null")))
	})

	It("export proxies for the CPI, and support any character in their URLs", func(ctx context.Context) {
		rendered := mustRender(ctx, withAgent(map[string]any{"env": map[string]any{"https_proxy": "http://u:it's@proxy:3128"}}))
		rendered.expectScript(ctx)
		Expect(rendered["bin/cpi"]).To(ContainSubstring(`export https_proxy='http://u:it'\''s@proxy:3128'`))
		Expect(rendered["bin/cpi"]).NotTo(ContainSubstring("no_proxy"))
	})
})
