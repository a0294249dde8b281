package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("Find", func() {
	var (
		continueTokens []string // the continue token of each request
		expiredPage    string   // the continue token for which the server responds once with 410 Gone
	)
	find := func(ctx context.Context, name string) (*corev1.Pod, bool, error) {
		continueTokens = nil
		server := startServer(func(w http.ResponseWriter, r *http.Request) { // three pages of one Pod each
			query := r.URL.Query()
			Expect(query.Get("limit")).To(Equal("250"))
			Expect(query.Get("labelSelector")).To(Equal("a=b"))
			token := query.Get("continue")
			continueTokens = append(continueTokens, token)
			if token != "" && token == expiredPage {
				expiredPage = ""
				statusResponse(http.StatusGone, "Expired")(w, r)
				return
			}
			page, _ := strconv.Atoi(token)
			next := ""
			if page < 2 {
				next = strconv.Itoa(page + 1)
			}
			w.Header().Set("Content-Type", "application/json")
			Expect(json.NewEncoder(w).Encode(map[string]any{"kind": "PodList", "apiVersion": "v1",
				"metadata": map[string]any{"resourceVersion": "7", "continue": next},
				"items":    []any{map[string]any{"metadata": map[string]any{"name": fmt.Sprint("pod-", page)}}}})).To(Succeed())
		})
		return newTestClient(server, trustServer(server)).Pods.Find(ctx, Selection{Labels: "a=b"}, func(pod *corev1.Pod) bool { return pod.Name == name })
	}

	It("reads pages up to the first match", func(ctx context.Context) {
		found, ok, err := find(ctx, "pod-1")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(found.Name).To(Equal("pod-1"))
		Expect(continueTokens).To(HaveExactElements("", "1"))
	})

	It("reports that no object matches", func(ctx context.Context) {
		_, ok, err := find(ctx, "pod-9")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeFalse())
		Expect(continueTokens).To(HaveExactElements("", "1", "2"))
	})

	It("starts over if a page expired", func(ctx context.Context) {
		expiredPage = "2"
		_, ok, err := find(ctx, "pod-2")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(continueTokens).To(HaveExactElements("", "1", "2", "", "1", "2"))
	})
})
