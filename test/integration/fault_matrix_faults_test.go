package integration

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/apiproxy"
)

// faultSpec is what happens at one request of a call.
type faultSpec struct {
	name string
	// inject makes it happen at request n. end sends a signal to the call's process.
	inject func(n int, end func(os.Signal)) apiproxy.Fault
	// appliesTo are the requests that it can happen to, all if nil.
	appliesTo func(request string) bool
	// tolerated is what a call does not notice: it ends as if nothing had been.
	tolerated bool
	// shortTimeout gives the call little time.
	shortTimeout bool
	// deletePod takes the object of a request away, before the API server gets it: a call cannot mend that, only say it.
	deletePod func(ctx context.Context, s *scenarioEnv, pod string)
}

func isWatch(request string) bool    { return strings.HasPrefix(request, "WATCH ") }
func isNotWatch(request string) bool { return !isWatch(request) }
func isEvent(request string) bool {
	return strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/events")
}

// allFaults are all that can happen, processes that end first.
func allFaults() []faultSpec {
	all := append(processFaults(), connectionFaults()...)
	for _, refusal := range []struct {
		code     int
		reason   metav1.StatusReason
		bearable bool
	}{
		{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, false},
		{http.StatusForbidden, metav1.StatusReasonForbidden, false},
		{http.StatusConflict, metav1.StatusReasonConflict, false},
		{http.StatusGone, metav1.StatusReasonExpired, false},
		{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, false},
		{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, true},
		{http.StatusInternalServerError, metav1.StatusReasonInternalError, true},
		{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, true},
		{http.StatusGatewayTimeout, metav1.StatusReasonTimeout, true},
	} {
		all = append(all, newFaultSpec("a "+http.StatusText(refusal.code), refusal.bearable, apiproxy.Refused(refusal.code, refusal.reason)))
	}
	all = append(all,
		newFaultSpec("a Too Many Requests that says when to come again", true, apiproxy.Throttled(1)),
		newFaultSpec("a proxy's Not Found", false, apiproxy.ProxyErrorAt(http.StatusNotFound)),
		newFaultSpec("a proxy's Bad Gateway", true, apiproxy.ProxyErrorAt(http.StatusBadGateway)),
	)
	return append(append(all, watchFaults()...), deletedPodFaults()...)
}

func newFaultSpec(name string, bearable bool, fault func(int) apiproxy.Fault) faultSpec {
	return faultSpec{name: name, tolerated: bearable, inject: func(n int, _ func(os.Signal)) apiproxy.Fault { return fault(n) }}
}

const killedAfter = "killed after it"

// processFaults end the process of the call.
func processFaults() []faultSpec {
	return []faultSpec{
		{name: "killed before it", inject: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.BeforeRequest(n, func() bool { end(os.Kill); return false })
		}},
		{name: killedAfter, inject: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.AfterRequest(n, func() { end(os.Kill) })
		}},
		{name: "killed while it reads the answer", appliesTo: isNotWatch, inject: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.WithinResponse(n, func() { end(os.Kill) })
		}},
		{name: "told to end", inject: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.BeforeRequest(n, func() bool { end(syscall.SIGTERM); return true })
		}},
	}
}

// connectionFaults are connections that break or take their time.
func connectionFaults() []faultSpec {
	truncated := newFaultSpec("an answer that breaks off", true, apiproxy.TruncatedBody)
	truncated.appliesTo = isNotWatch
	hanging := newFaultSpec("no answer for ever", false, apiproxy.UnansweredRequest)
	hanging.shortTimeout = true
	return []faultSpec{
		newFaultSpec("a connection that breaks before", true, apiproxy.ResetBefore),
		newFaultSpec("an answer that is lost on the way back", true, apiproxy.ResetAfter),
		truncated,
		newFaultSpec("an answer after three seconds", true, apiproxy.DelayedRequest(3*time.Second)),
		hanging,
	}
}

// watchFaults are what can become of a watch.
func watchFaults() []faultSpec {
	all := []faultSpec{
		newFaultSpec("a watch that ends at once", true, apiproxy.ClosedWatch),
		newFaultSpec("watches that end every second", true, func(int) apiproxy.Fault { return apiproxy.ShortWatches(time.Second) }),
		newFaultSpec("a watch that is too old", true, apiproxy.ExpiredWatch),
		newFaultSpec("a watch that says nothing for two seconds", true, apiproxy.SilentWatch(2*time.Second)),
		newFaultSpec("watches that say all twice", true, apiproxy.DuplicatedEvents),
	}
	for i := range all {
		all[i].appliesTo = isWatch
	}
	return all
}

// podRequestPattern matches a request about one Pod.
var podRequestPattern = regexp.MustCompile(`^(?:GET|PATCH|DELETE) namespaces/[^/]+/pods/([^/]+)`)

func isPodRequest(request string) bool { return podRequestPattern.MatchString(request) }

// deletedPodFaults are Pods that somebody else deletes between two requests.
func deletedPodFaults() []faultSpec {
	return []faultSpec{
		{name: "its Pod taken away before", appliesTo: isPodRequest, deletePod: func(ctx context.Context, s *scenarioEnv, pod string) { s.forceDeletePod(ctx, pod) }},
		{name: "its Pod taken away before, and another made in its place", appliesTo: isPodRequest, deletePod: func(ctx context.Context, s *scenarioEnv, pod string) {
			s.forceDeletePod(ctx, pod)
			s.createForeignPod(ctx, pod)
		}},
	}
}

// forceDeletePod deletes a Pod at once, as nobody should.
func (s *scenarioEnv) forceDeletePod(ctx context.Context, pod string) {
	err := cluster.CoreV1().Pods(s.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

const foreignPodLabel = "test/squatter"

// createForeignPod makes a Pod of this name that is not the CPI's.
func (s *scenarioEnv) createForeignPod(ctx context.Context, pod string) {
	_, err := cluster.CoreV1().Pods(s.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{foreignPodLabel: "yes"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "registry.example.com/other:1"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// deleteForeignPods removes such Pods. Each has to be there still.
func (s *scenarioEnv) deleteForeignPods(ctx context.Context) {
	foreignPods, err := cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: foreignPodLabel})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range foreignPods.Items {
		Expect(pod.DeletionTimestamp).To(BeNil(), "somebody else's Pod %s is being deleted", pod.Name)
		s.forceDeletePod(ctx, pod.Name)
	}
}
