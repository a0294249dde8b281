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

var _ = Describe("The reasons of Events", func() {
	It("are those of the page", func() {
		raw, err := os.ReadFile("../docs/operations.md")
		Expect(err).NotTo(HaveOccurred())
		documented := map[string][]string{}
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]+ \\| (\\w+) \\| (\\w+) \\| (\\w*) ?\\|$").FindAllStringSubmatch(string(raw), -1) {
			documented[row[1]] = row[2:]
		}
		Expect(documented).To(HaveLen(len(eventReasons)))
		for method, reasons := range eventReasons {
			Expect(documented).To(HaveKeyWithValue(method, ConsistOf(reasons.forResult(nil), reasons.forResult(errors.New("x")),
				Or(BeEmpty(), Equal(reasons.forResult(call.InUse(call.CloudError.Errorf("x"))))))), method)
		}
	})

	It("are there for all methods that ask the cluster, but questions, metadata and networks", func() {
		for method := range methods {
			_, leaves := eventReasons[method]
			silent := !methods[method].needsCluster || regexp.MustCompile("^(has|get|set)_|_network$").MatchString(method)
			Expect(leaves).To(Equal(!silent), method)
		}
	})

	It("tell a refusal from a failure, however it is wrapped", func() {
		refused := call.InUse(call.CloudError.Errorf("the cause"))
		for _, err := range []error{refused, fmt.Errorf("more: %w", refused), errors.Join(refused, errors.New("of the undo"))} {
			Expect(eventReasons["detach_disk"].forResult(err)).To(Equal("DetachRefused"))
			Expect(call.AsBOSH(err).Type()).To(BeEquivalentTo(call.CloudError))
		}
		Expect(eventReasons["detach_disk"].forResult(call.CloudError.Errorf("the cause"))).To(Equal("DetachFailed"))
	})
})

var _ = Describe("The Event of a call", func() {
	// ended is a session whose API server cannot be reached, and its log.
	unreachableSession := func() (*requestSession, *bytes.Buffer) {
		GinkgoHelper()
		w := newUnreachableCPI()
		log := &bytes.Buffer{}
		s := &requestSession{config: w.config, Call: &call.Call{
			ID:      func() string { return "call-1" },
			Subject: &call.Subject{Object: corev1.ObjectReference{Kind: "Pod", Name: "agent-1", Namespace: "bosh"}},
			Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}}
		Expect(s.ensureClient()).To(Succeed())
		return s, log
	}

	It("that cannot be left is told of at debug, and given up within a second", func(ctx context.Context) {
		s, log := unreachableSession()
		s.config.Timeouts.Request.Duration = time.Minute
		Expect(s.ensureClient()).To(Succeed())
		began := time.Now()
		s.recordCallEvent(ctx, "create_vm", time.Second, nil)
		Expect(time.Since(began)).To(BeNumerically("<", 3*time.Second))
		Expect(log.String()).To(And(ContainSubstring("level=DEBUG"), ContainSubstring("no Event was left")))
	})

	It("is not tried where nothing is to be left, or no request arrives", func(ctx context.Context) {
		for _, testCase := range []struct {
			method string
			change func(*requestSession)
			failed error
		}{
			{method: "has_vm"},
			{method: "create_vm", change: func(s *requestSession) { s.config.Events.Enabled = false }},
			{method: "create_vm", change: func(s *requestSession) { s.Subject.Object = corev1.ObjectReference{} }},
			{method: "create_vm", failed: call.CloudError.Wrap(&kube.Error{Kind: kube.ErrUnreachable, Err: errors.New("words")}, false)},
		} {
			s, log := unreachableSession()
			if testCase.change != nil {
				testCase.change(s)
			}
			s.recordCallEvent(ctx, testCase.method, time.Second, testCase.failed)
			Expect(log.String()).To(BeEmpty(), testCase.method)
		}
	})

	It("has the words of the answer", func() {
		s, _ := unreachableSession()
		s.SetDetail("disk disk-1")
		failed := fmt.Errorf("more: %w", kube.ErrRefused)
		message := s.eventMessage("attach_disk", 1234*time.Millisecond, failed)
		Expect(message).To(Equal("attach_disk (disk disk-1) failed after 1.2 s: " + call.AsBOSH(failed).Error()))
		Expect(strings.Count(message, "refuses the request")).To(Equal(1))
	})
})
