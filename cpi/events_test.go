package cpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

var _ = Describe("Event reasons", func() {
	It("are documented in docs/guides/operations.md", func() {
		raw, err := os.ReadFile("../docs/guides/operations.md")
		Expect(err).NotTo(HaveOccurred())
		documented := map[string][]string{}
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]+ \\| (\\w+) \\| (\\w+) \\| (\\w*) ?\\|$").FindAllStringSubmatch(string(raw), -1) {
			documented[row[1]] = row[2:]
		}
		for method, row := range methods {
			reasons := row.event
			if reasons.success == "" {
				Expect(documented).NotTo(HaveKey(method))
				continue
			}
			Expect(documented).To(HaveKeyWithValue(method, ConsistOf(reasons.forResult(nil), reasons.forResult(errors.New("x")),
				Or(BeEmpty(), Equal(reasons.forResult(call.CodeDiskInUse.Errorf("x")))))), method)
		}
	})

	It("exist for all methods that access the cluster, except for queries, metadata and networks", func() {
		for method, row := range methods {
			hasEvents := Not(BeEmpty())
			if !row.needsCluster || regexp.MustCompile("^(has|get|set)_|_network$").MatchString(method) {
				hasEvents = BeEmpty()
			}
			Expect(row.event.success).To(hasEvents, method)
		}
	})

	It("distinguish a rejection from a failure, also for wrapped errors", func() {
		rejected := call.CodeDiskInUse.Errorf("the cause")
		ofNode := call.CodeDiskAttachFailed.Errorf("cannot attach disk: it is in use outside of the VM [disk-in-use]")
		for _, err := range []error{rejected, fmt.Errorf("more: %w", rejected), errors.Join(rejected, errors.New("of the rollback")), ofNode} {
			Expect(methods["detach_disk"].event.forResult(err)).To(Equal("DetachRejected"))
			Expect(call.AsBOSHError(err).Type()).To(BeEquivalentTo(call.CloudError))
		}
		Expect(methods["detach_disk"].event.forResult(call.CodeClusterError.Errorf("the cause"))).To(Equal("DetachFailed"))
	})
})

var _ = Describe("The Event of a call", func() {
	// unreachableSession returns a session with an unreachable API server, and its log.
	unreachableSession := func() (*requestSession, *bytes.Buffer) {
		GinkgoHelper()
		u := newUnreachableCPI()
		log := &bytes.Buffer{}
		s := &requestSession{config: u.config, Call: &call.Call{
			ID:      "call-1",
			Subject: &call.Subject{Object: corev1.ObjectReference{Kind: "Pod", Name: "agent-1", Namespace: "bosh"}},
			Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}}
		Expect(s.ensureClient()).To(Succeed())
		return s, log
	}

	It("is abandoned if the API server is unreachable, with a log line at debug", func(ctx context.Context) {
		s, log := unreachableSession()
		s.config.Timeouts.Request.Duration = time.Hour
		Expect(s.ensureClient()).To(Succeed())
		s.recordCallEvent(ctx, "create_vm", time.Second, nil)
		Expect(log.String()).To(And(ContainSubstring("level=DEBUG"), ContainSubstring("cannot create event")))
	})

	It("is not attempted if the call has none or the API server is unreachable", func(ctx context.Context) {
		for _, testCase := range []struct {
			method string
			change func(*requestSession)
			failed error
		}{
			{method: "has_vm"},
			{method: "create_vm", change: func(s *requestSession) { s.config.Events.Enabled = false }},
			{method: "create_vm", change: func(s *requestSession) { s.Subject.Object = corev1.ObjectReference{} }},
			{method: "create_vm", failed: call.CodeClusterError.Wrap(&kube.Error{Kind: kube.ErrUnreachable, Err: errors.New("words")}, false)},
		} {
			s, log := unreachableSession()
			if testCase.change != nil {
				testCase.change(s)
			}
			s.recordCallEvent(ctx, testCase.method, time.Second, testCase.failed)
			Expect(log.String()).To(BeEmpty(), testCase.method)
		}
	})

	It("contains the error message of the response", func() {
		s, _ := unreachableSession()
		s.SetDetail("disk disk-1")
		failed := fmt.Errorf("more: %w", kube.ErrDenied)
		message := s.eventMessage("attach_disk", 1234*time.Millisecond, failed)
		Expect(message).To(Equal("attach_disk (disk disk-1) failed after 1.2 s: " + call.AsBOSHError(failed).Error() + " [request-denied]"))
		Expect(strings.Count(message, "denied a request")).To(Equal(1))
	})
})
