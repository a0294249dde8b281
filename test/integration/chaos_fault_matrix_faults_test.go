package integration

import (
	"context"
	"fmt"
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

	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// faultSpec is a fault that can be injected at one request of a call.
type faultSpec struct {
	name string
	// inject returns the fault for request n. sendSignal sends a signal to the process of the call.
	inject func(n int, sendSignal func(os.Signal)) apiproxy.Fault
	// appliesTo reports whether the fault applies to a request. If it is nil, the fault applies to all requests.
	appliesTo func(request string) bool
	// tolerated means that the call returns the same result as without the fault.
	tolerated bool
	// shortTimeout means that the call has short timeouts.
	shortTimeout bool
	// deletePod deletes the Pod of a request before the API server gets the request. A call can report that, but not repair it.
	deletePod func(ctx context.Context, s *scenarioEnv, pod string)
}

func isWatch(request string) bool    { return strings.HasPrefix(request, "WATCH ") }
func isNotWatch(request string) bool { return !isWatch(request) }
func isEventRequest(request string) bool {
	return strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/events")
}

// allFaults returns every fault of the matrix.
func allFaults() []faultSpec {
	faults := append(processFaults(), connectionFaults()...)
	for _, status := range []struct {
		code      int
		reason    metav1.StatusReason
		tolerated bool
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
		faults = append(faults, newFaultSpec(statusName(status.code), status.tolerated, apiproxy.ErrorStatus(status.code, status.reason)))
	}
	faults = append(faults,
		newFaultSpec(statusName(http.StatusTooManyRequests)+" with Retry-After", true, apiproxy.Throttled(1)),
		newFaultSpec(statusName(http.StatusNotFound)+" from a proxy", false, apiproxy.ProxyErrorAt(http.StatusNotFound)),
		newFaultSpec(statusName(http.StatusBadGateway)+" from a proxy", true, apiproxy.ProxyErrorAt(http.StatusBadGateway)),
	)
	return append(append(faults, watchFaults()...), deletedPodFaults()...)
}

// statusName returns the name of an HTTP status, such as "404 Not Found".
func statusName(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }

// newFaultSpec returns a fault without signals to the process of the call.
func newFaultSpec(name string, tolerated bool, fault func(int) apiproxy.Fault) faultSpec {
	return faultSpec{name: name, tolerated: tolerated, inject: func(n int, _ func(os.Signal)) apiproxy.Fault { return fault(n) }}
}

const killedAfter = "process killed after the request"

// processFaults returns faults that kill or terminate the process of the call.
func processFaults() []faultSpec {
	return []faultSpec{
		{name: "process killed before the request", inject: func(n int, sendSignal func(os.Signal)) apiproxy.Fault {
			return apiproxy.BeforeRequest(n, func() bool { sendSignal(os.Kill); return false })
		}},
		{name: killedAfter, inject: func(n int, sendSignal func(os.Signal)) apiproxy.Fault {
			return apiproxy.AfterRequest(n, func() { sendSignal(os.Kill) })
		}},
		{name: "process killed while it reads the response", appliesTo: isNotWatch, inject: func(n int, sendSignal func(os.Signal)) apiproxy.Fault {
			return apiproxy.WithinResponse(n, func() { sendSignal(os.Kill) })
		}},
		{name: "process terminated with SIGTERM before the request", inject: func(n int, sendSignal func(os.Signal)) apiproxy.Fault {
			return apiproxy.BeforeRequest(n, func() bool { sendSignal(syscall.SIGTERM); return true })
		}},
	}
}

// connectionFaults returns faults that break or delay a connection.
func connectionFaults() []faultSpec {
	truncated := newFaultSpec("truncated response", true, apiproxy.TruncatedBody)
	truncated.appliesTo = isNotWatch
	hanging := newFaultSpec("no response", false, apiproxy.NoResponse)
	hanging.shortTimeout = true
	return []faultSpec{
		newFaultSpec("connection broken before the request", true, apiproxy.ResetBefore),
		newFaultSpec("lost response", true, apiproxy.ResetAfter),
		truncated,
		newFaultSpec("response after three seconds", true, apiproxy.DelayedRequest(3*time.Second)),
		hanging,
	}
}

// watchFaults returns faults of watches.
func watchFaults() []faultSpec {
	faults := []faultSpec{
		newFaultSpec("watch that is closed at once", true, apiproxy.ClosedWatch),
		newFaultSpec("watches that are closed every second", true, func(int) apiproxy.Fault { return apiproxy.ShortWatches(time.Second) }),
		newFaultSpec("watch with an expired resource version", true, apiproxy.ExpiredWatch),
		newFaultSpec("watch without events for two seconds", true, apiproxy.SilentWatch(2*time.Second)),
		newFaultSpec("watches that send each event twice", true, apiproxy.DuplicatedEvents),
	}
	for i := range faults {
		faults[i].appliesTo = isWatch
	}
	return faults
}

// podRequestPattern matches a request about one Pod.
var podRequestPattern = regexp.MustCompile(`^(?:GET|PATCH|DELETE) namespaces/[^/]+/pods/([^/]+)`)

func isPodRequest(request string) bool { return podRequestPattern.MatchString(request) }

// deletedPodFaults returns faults that delete a Pod between two requests, as another client could.
func deletedPodFaults() []faultSpec {
	return []faultSpec{
		{name: "Pod deleted before the request", appliesTo: isPodRequest, deletePod: func(ctx context.Context, s *scenarioEnv, pod string) { s.forceDeletePod(ctx, pod) }},
		{name: "Pod deleted before the request, and replaced by an unmanaged Pod", appliesTo: isPodRequest, deletePod: func(ctx context.Context, s *scenarioEnv, pod string) {
			s.forceDeletePod(ctx, pod)
			s.createUnmanagedPod(ctx, pod)
		}},
	}
}

// forceDeletePod deletes a Pod without a grace period.
func (env testEnv) forceDeletePod(ctx context.Context, pod string) {
	err := cluster.CoreV1().Pods(env.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

const unmanagedPodLabel = "test/unmanaged"

// createUnmanagedPod creates a Pod of this name that does not belong to the CPI.
func (env testEnv) createUnmanagedPod(ctx context.Context, pod string) {
	_, err := cluster.CoreV1().Pods(env.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{unmanagedPodLabel: "yes"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "registry.example.com/other:1"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// deleteUnmanagedPods deletes the Pods of createUnmanagedPod, and expects that the CPI did not start to delete them.
func (s *scenarioEnv) deleteUnmanagedPods(ctx context.Context) {
	unmanagedPods, err := cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: unmanagedPodLabel})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range unmanagedPods.Items {
		Expect(pod.DeletionTimestamp).To(BeNil(), "Pod %s, which does not belong to the CPI, is being deleted", pod.Name)
		s.forceDeletePod(ctx, pod.Name)
	}
}
