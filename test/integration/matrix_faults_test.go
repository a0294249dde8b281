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

// disturbance is what happens at one request of a call.
type disturbance struct {
	name string
	// at makes it happen at request n. end sends a signal to the call's process.
	at func(n int, end func(os.Signal)) apiproxy.Fault
	// befalls are the requests that it can happen to, all if nil.
	befalls func(request string) bool
	// bearable is what a call does not notice: it ends as if nothing had been.
	bearable bool
	// brief gives the call little time.
	brief bool
	// taking takes the object of a request away, before the API server gets it: a call cannot mend that, only say it.
	taking func(ctx context.Context, s *stage, pod string)
}

func isWatch(request string) bool { return strings.HasPrefix(request, "WATCH ") }
func isPlain(request string) bool { return !isWatch(request) }
func isEvent(request string) bool {
	return strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/events")
}

// disturbances are all that can happen, processes that end first.
func disturbances() []disturbance {
	all := append(endings(), broken()...)
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
		all = append(all, plain("a "+http.StatusText(refusal.code), refusal.bearable, apiproxy.Refused(refusal.code, refusal.reason)))
	}
	all = append(all,
		plain("a Too Many Requests that says when to come again", true, apiproxy.Throttled(1)),
		plain("a proxy's Not Found", false, apiproxy.ForeignAt(http.StatusNotFound)),
		plain("a proxy's Bad Gateway", true, apiproxy.ForeignAt(http.StatusBadGateway)),
	)
	return append(append(all, watched()...), taken()...)
}

func plain(name string, bearable bool, fault func(int) apiproxy.Fault) disturbance {
	return disturbance{name: name, bearable: bearable, at: func(n int, _ func(os.Signal)) apiproxy.Fault { return fault(n) }}
}

const killedAfter = "killed after it"

// endings end the process of the call.
func endings() []disturbance {
	return []disturbance{
		{name: "killed before it", at: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.Before(n, func() bool { end(os.Kill); return false })
		}},
		{name: killedAfter, at: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.After(n, func() { end(os.Kill) })
		}},
		{name: "killed while it reads the answer", befalls: isPlain, at: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.Within(n, func() { end(os.Kill) })
		}},
		{name: "told to end", at: func(n int, end func(os.Signal)) apiproxy.Fault {
			return apiproxy.Before(n, func() bool { end(syscall.SIGTERM); return true })
		}},
	}
}

// broken are connections that break or take their time.
func broken() []disturbance {
	cut := plain("an answer that breaks off", true, apiproxy.CutShort)
	cut.befalls = isPlain
	hanging := plain("no answer for ever", false, apiproxy.Hanging)
	hanging.brief = true
	return []disturbance{
		plain("a connection that breaks before", true, apiproxy.ResetBefore),
		plain("an answer that is lost on the way back", true, apiproxy.ResetAfter),
		cut,
		plain("an answer after three seconds", true, apiproxy.Slow(3*time.Second)),
		hanging,
	}
}

// watched are what can become of a watch.
func watched() []disturbance {
	all := []disturbance{
		plain("a watch that ends at once", true, apiproxy.ClosedWatch),
		plain("watches that end every second", true, func(int) apiproxy.Fault { return apiproxy.BriefWatches(time.Second) }),
		plain("a watch that is too old", true, apiproxy.ExpiredWatch),
		plain("a watch that says nothing for two seconds", true, apiproxy.SilentWatch(2*time.Second)),
		plain("watches that say all twice", true, apiproxy.Doubled),
	}
	for i := range all {
		all[i].befalls = isWatch
	}
	return all
}

// ofPod matches a request about one Pod.
var ofPod = regexp.MustCompile(`^(?:GET|PATCH|DELETE) namespaces/[^/]+/pods/([^/]+)`)

func isAboutPod(request string) bool { return ofPod.MatchString(request) }

// taken are Pods that somebody else deletes between two requests.
func taken() []disturbance {
	return []disturbance{
		{name: "its Pod taken away before", befalls: isAboutPod, taking: func(ctx context.Context, s *stage, pod string) { s.snatch(ctx, pod) }},
		{name: "its Pod taken away before, and another made in its place", befalls: isAboutPod, taking: func(ctx context.Context, s *stage, pod string) {
			s.snatch(ctx, pod)
			s.squat(ctx, pod)
		}},
	}
}

// snatch deletes a Pod at once, as nobody should.
func (s *stage) snatch(ctx context.Context, pod string) {
	err := cluster.CoreV1().Pods(s.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

const squatter = "test/squatter"

// squat makes a Pod of this name that is not the CPI's.
func (s *stage) squat(ctx context.Context, pod string) {
	_, err := cluster.CoreV1().Pods(s.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{squatter: "yes"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "registry.example.com/other:1"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// evictSquatters removes such Pods. Each has to be there still.
func (s *stage) evictSquatters(ctx context.Context) {
	theirs, err := cluster.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: squatter})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range theirs.Items {
		Expect(pod.DeletionTimestamp).To(BeNil(), "somebody else's Pod %s is being deleted", pod.Name)
		s.snatch(ctx, pod.Name)
	}
}
