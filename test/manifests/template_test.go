package manifests

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/stemcell"
)

var _ = Describe("The job's templates", func() {
	with := func(properties map[string]any) map[string]any {
		all := map[string]any{"agent": map[string]any{"mbus": "nats://10.0.0.6:4222"}}
		maps.Copy(all, properties)
		return all
	}
	blobstore := func(ctx context.Context, properties map[string]any) agentsettings.Blobstore {
		GinkgoHelper()
		return mustRender(ctx, with(map[string]any{"blobstore": properties})).config().Agent.Blobstore
	}

	It("need the message bus alone", func(ctx context.Context) {
		rendered := mustRender(ctx, with(nil))
		rendered.expectScript(ctx)
		Expect(rendered.config().Agent).To(Equal(agentsettings.Options{Mbus: "nats://10.0.0.6:4222", NTP: []string{}}))
		_, err := render(ctx, map[string]any{})
		Expect(err).To(MatchError(ContainSubstring("agent.mbus")))
	})

	It("give agents a dav blobstore, over TLS where it has a certificate authority", func(ctx context.Context) {
		dav := map[string]any{"provider": "dav", "address": "10.0.0.6", "agent": map[string]any{"user": "agent", "password": "secret"}}
		Expect(blobstore(ctx, dav)).To(Equal(agentsettings.Blobstore{Provider: "dav", Options: map[string]any{
			"endpoint": "http://10.0.0.6:25250", "user": "agent", "password": "secret",
		}}))
		dav["tls"] = map[string]any{"cert": map[string]any{"ca": "authority"}}
		Expect(blobstore(ctx, dav).Options).To(Equal(map[string]any{
			"endpoint": "https://10.0.0.6:25250", "user": "agent", "password": "secret",
			"tls": map[string]any{"cert": map[string]any{"ca": "authority"}},
		}))
	})

	It("give agents no account at a dav blobstore whose URLs are signed", func(ctx context.Context) {
		Expect(blobstore(ctx, map[string]any{"provider": "dav", "address": "10.0.0.6", "enable_signed_urls": true}).Options).
			To(Equal(map[string]any{"endpoint": "http://10.0.0.6:25250"}))
	})

	It("give create-env's agent its local blobstore", func(ctx context.Context) {
		Expect(blobstore(ctx, map[string]any{"provider": "local", "path": "/var/vcap/blobs"})).To(Equal(agentsettings.Blobstore{
			Provider: "local", Options: map[string]any{"blobstore_path": "/var/vcap/blobs"},
		}))
	})

	DescribeTable("keep the director's account at a blobstore of a cloud from agents, which have their own by their env",
		func(ctx context.Context, provider string) {
			rendered := mustRender(ctx, with(map[string]any{"blobstore": map[string]any{
				"provider": provider, "bucket_name": "director", "access_key_id": "director", "secret_access_key": "secret", "json_key": "secret",
			}}))
			Expect(rendered.config().Agent.Blobstore).To(Equal(agentsettings.Blobstore{}))
			Expect(rendered["config/cpi.json"]).NotTo(ContainSubstring("secret"))
		},
		Entry("s3", "s3"), Entry("gcs", "gcs"), Entry("azure-storage", "azure-storage"), Entry("alioss", "alioss"))

	It("have nodes pull stemcells' images early where that is asked for, and say nothing of it otherwise", func(ctx context.Context) {
		Expect(mustRender(ctx, with(nil))["config/cpi.json"]).NotTo(ContainSubstring("prefetch"))
		Expect(mustRender(ctx, with(map[string]any{"stemcell": map[string]any{"prefetch": map[string]any{
			"enabled": true, "node_selector": map[string]any{"dedicated": "bosh"}, "tolerations": []any{map[string]any{"operator": "Exists"}},
		}}})).config().Stemcell.Prefetch).To(Equal(stemcell.Prefetch{
			Enabled: true, NodeSelector: map[string]string{"dedicated": "bosh"}, Tolerations: []stemcell.Toleration{{Operator: "Exists"}},
		}))
	})

	It("name proxies to the CPI, whatever characters are in them", func(ctx context.Context) {
		rendered := mustRender(ctx, with(map[string]any{"env": map[string]any{"https_proxy": "http://u:it's@proxy:3128"}}))
		rendered.expectScript(ctx)
		Expect(rendered["bin/cpi"]).To(ContainSubstring(`export https_proxy='http://u:it'\''s@proxy:3128'`))
		Expect(rendered["bin/cpi"]).NotTo(ContainSubstring("no_proxy"))
	})
})
