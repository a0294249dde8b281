package kube

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/canary"
)

// kubeconfigWith returns a kubeconfig with one context, and these keys of its cluster and user in YAML.
func kubeconfigWith(cluster, user string) string {
	return fmt.Sprintf("{current-context: it, contexts: [{name: it, context: {cluster: k, user: u}}],\n"+
		"clusters: [{name: k, cluster: {%s}}],\nusers: [{name: u, user: {%s}}]}", cluster, user)
}

var _ = Describe("A kubeconfig", func() {
	const server = "server: 'https://10.0.0.1:6443'"
	DescribeTable("is rejected with the key and the remedy", func(kubeconfig, message string) {
		_, err := New(Options{Kubeconfig: kubeconfig}, "test", 0)
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(err).NotTo(MatchError(ContainSubstring("s3cret")))

		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(path, []byte(kubeconfig), 0o600)).To(Succeed())
		_, err = New(Options{KubeconfigPath: path}, "test", 0)
		Expect(err).To(MatchError(And(ContainSubstring(path), ContainSubstring(message))))
		Expect(err).NotTo(MatchError(ContainSubstring("s3cret")))
	},
		Entry("two users of a name", "users: [{name: u, user: {token: s3cret}}, {name: u, user: {token: s3cret}}]", `users: the name "u" occurs twice`),
		Entry("two clusters of a name", "clusters: [{name: k, cluster: {}}, {name: k, cluster: {}}]", `clusters: the name "k" occurs twice`),
		Entry("a value of another type", "users: [{name: a}, {name: u, user: {token: [s3cret]}}]", "users[1].user.token must be a string, not a list"),
		Entry("data that is not base64", kubeconfigWith(server+", certificate-authority-data: '-----BEGIN CERTIFICATE-----'", ""),
			"clusters[0].cluster.certificate-authority-data must be base64"),
		Entry("invalid YAML", "users:\n- name: u\n  user: {token: s3cret\n", "is not valid YAML: see line"),
		Entry("a variable", "((kubeconfig))", "is a variable without a value"),
		Entry("a path", "/home/me/.kube/config", "is a path, not a kubeconfig"),
		Entry("base64", base64.StdEncoding.EncodeToString([]byte("clusters: []\n")), "is base64, not a kubeconfig; decode it"),
		Entry("no context", "users: []", "current-context is missing"),
		Entry("a missing context", "{current-context: a, contexts: [{name: b, context: {}}]}", `contexts has no entry "a", only b`),
		Entry("a missing cluster", "{current-context: a, contexts: [{name: a, context: {cluster: k}}]}", `clusters has no entry "k"; it is empty`),
		Entry("a missing user", strings.Replace(kubeconfigWith(server, ""), "name: u", "name: v", 1), `users has no entry "u", only v`),
		Entry("no server", kubeconfigWith("", ""), `clusters["k"].cluster.server is missing`),
		Entry("a server without a scheme", kubeconfigWith("server: 'api.test:6443'", ""), "server must be a URL with https://"),
		Entry("an address without a scheme", kubeconfigWith("server: '127.0.0.1:16443'", ""), "server must be a URL with https://"),
		Entry("a server that is not a URL", kubeconfigWith("server: 'https://u:s3cret%zz@127.0.0.1:9'", ""), "server is not a valid URL"),
		Entry("a proxy without a scheme", kubeconfigWith(server+", proxy-url: 'user:s3cret@proxy.test:3128'", ""), "proxy-url must be a URL"),
		Entry("a proxy with # in the password", kubeconfigWith(server+", proxy-url: 'http://user:1#s3cret@proxy.test:3128'", ""), "percent-encode"),
		Entry("a proxy with % in the password", kubeconfigWith(server+", proxy-url: 'http://user:%s3cret@proxy.test:3128'", ""), "percent-encode"),
		Entry("an authority that kubectl omitted", kubeconfigWith(server+", certificate-authority-data: DATA+OMITTED", ""), "kubectl config view --raw"),
		Entry("a certificate that kubectl redacted", kubeconfigWith(server, "client-certificate-data: REDACTED"), "client-certificate-data is not the value"),
		Entry("a token that kubectl redacted", kubeconfigWith(server, "token: REDACTED"), "token is not the value"),
		Entry("an authority that is not PEM", kubeconfigWith(server+", certificate-authority-data: czNjcmV0", ""), "certificates in PEM format"),
		Entry("no verification with an authority", kubeconfigWith(server+", insecure-skip-tls-verify: true, certificate-authority: /ca", ""), "are mutually exclusive"),
		Entry("a certificate without its key", kubeconfigWith(server, "client-certificate-data: czNjcmV0, client-key-data: czNjcmV0"), "are not a certificate and its key"),
		Entry("a token with a newline", kubeconfigWith(server, `token: "s3cret\n"`), `users["u"].user.token has white space`),
		Entry("a certificate as a path", kubeconfigWith(server, "client-certificate: LS0ts3cret"), "users[0].user.client-certificate is not a path; use client-certificate-data"),
		Entry("a key as a path", kubeconfigWith(server, `client-key: "-----BEGIN PRIVATE KEY-----s3cret"`), "users[0].user.client-key is not a path"),
		Entry("a token as a path", kubeconfigWith(server, "tokenFile: eyJs3cret"), "users[0].user.tokenFile is not a path; use token"),
		Entry("an authority as a path", kubeconfigWith(server+`, certificate-authority: "s3cret\ns3cret"`, ""), "clusters[0].cluster.certificate-authority is not a path"),
		Entry("a token with a blank", kubeconfigWith(server, `token: " s3cret"`), `users["u"].user.token has white space`),
		Entry("an auth provider", kubeconfigWith(server, "auth-provider: {name: gcp, config: {access-token: s3cret}}"), "auth-provider gcp is no longer supported"),
		Entry("a credential plugin of an old version", kubeconfigWith(server, "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}"),
			"use a plugin with client.authentication.k8s.io/v1"),
	)

	It("is rejected as a path without its content", func() {
		Expect(Options{KubeconfigPath: "users:\n- s3cret"}.Validate()).To(MatchError(And(ContainSubstring("is not a path"), Not(ContainSubstring("s3cret")))))
	})

	It("may have a proxy with a slash at the end", func() {
		_, err := New(Options{Kubeconfig: kubeconfigWith(server+", proxy-url: 'http://proxy.test:3128/'", "")}, "test", 0)
		Expect(err).NotTo(HaveOccurred())
	})

	It("may have unknown keys, nulls and extensions", func() {
		_, err := New(Options{Kubeconfig: kubeconfigWith(server+", extensions: [{name: minikube, extension: {last-update: x}}], other: 1", "token: t, password: null")}, "test", 0)
		Expect(err).NotTo(HaveOccurred())
	})

	It("shows no value in an error, however it is broken", func() {
		broken := 0
		for _, text := range canary.Documents(kubeconfigTree(), "name", "current-context", "cluster", "user", "apiVersion", "command") {
			options := Options{Kubeconfig: text}
			_, err := New(options, "test", 0)
			_, accessErr := options.HostAccess()
			for _, err := range []error{err, accessErr} {
				if err != nil {
					broken++
					Expect(canary.IsIn(err.Error())).To(BeFalse(), "%v for %s", err, text)
				}
			}
		}
		Expect(broken).To(BeNumerically(">", 2000))
	})
})

// kubeconfigTree returns a kubeconfig in which each value that may be secret contains the word canary.
func kubeconfigTree() map[string]any {
	cluster := map[string]any{"server": "https://u:canary@10.0.0.1:6443", "proxy-url": "http://u:canary@10.0.0.2:3128",
		"certificate-authority-data": canary.Data, "tls-server-name": "canary", "extensions": []any{map[string]any{"name": "e", "extension": map[string]any{"a": "canary"}}}}
	user := map[string]any{"token": "canary", "username": "canary", "password": "canary", "client-certificate-data": canary.Data, "client-key-data": canary.Data,
		"as": "canary", "as-groups": []any{"canary"}, "as-user-extra": map[string]any{"k": []any{"canary"}},
		"exec":          map[string]any{"apiVersion": "v1", "command": "c", "args": []any{"canary"}, "env": []any{map[string]any{"name": "N", "value": "canary"}}},
		"auth-provider": map[string]any{"name": "p", "config": map[string]any{"k": "canary"}}}
	return map[string]any{"current-context": "it", "contexts": []any{map[string]any{"name": "it", "context": map[string]any{"cluster": "k", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "k", "cluster": cluster}}, "users": []any{map[string]any{"name": "u", "user": user}}}
}
