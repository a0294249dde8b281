package apiproxy

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unavailable answers request n with a 503 that carries no Retry-After, once.
func Unavailable(n int) Fault {
	return Refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)(n)
}

// Refused answers request n, once, as an API server does: with a Status of this code and reason.
func Refused(code int, reason metav1.StatusReason) func(n int) Fault {
	return refused(code, reason, "")
}

// Throttled answers request n with a 429 that says when to come again, in seconds.
func Throttled(seconds int) func(n int) Fault {
	return refused(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, strconv.Itoa(seconds))
}

func refused(code int, reason metav1.StatusReason, after string) func(n int) Fault {
	return func(n int) Fault {
		return at(n, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/json")
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"made up for a test"}`, reason, code)
		})
	}
}

// Foreign answers every request with the code and a text that is not of Kubernetes, as a proxy does that
// has lost its API server.
func Foreign(code int) Fault {
	return func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "no such backend", code)
	}
}

// ForeignAt answers request n so, once.
func ForeignAt(code int) func(n int) Fault {
	return func(n int) Fault {
		return at(n, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { http.Error(w, "no such backend", code) })
	}
}

// ResetBefore breaks the connection instead of passing request n on.
func ResetBefore(n int) Fault {
	return Before(n, func() bool { return false })
}

// ResetAfter passes request n on and breaks the connection instead of answering.
func ResetAfter(n int) Fault {
	return After(n, func() {})
}

// CutShort passes request n on and breaks the connection in the middle of the answer's body.
func CutShort(n int) Fault {
	return Within(n, func() {})
}

// Before does something and passes request n on only when it returns true; otherwise the connection
// breaks.
func Before(n int, do func() bool) Fault {
	return at(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !do() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// After passes request n on, does something, and breaks the connection instead of answering.
func After(n int, do func()) Fault {
	return at(n, func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		if !watches(r) {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		do()
		panic(http.ErrAbortHandler)
	})
}

// Within passes request n on, answers half of the body, does something, and breaks the connection.
func Within(n int, do func()) Fault {
	return at(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !watches(r) {
			half(w, r, next)
		}
		do()
		panic(http.ErrAbortHandler)
	})
}

func half(w http.ResponseWriter, r *http.Request, next http.Handler) {
	whole := httptest.NewRecorder()
	next.ServeHTTP(whole, r)
	body := whole.Body.Bytes()
	maps.Copy(w.Header(), whole.Header())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(whole.Code)
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
}

// Instead answers request n, once, with what does so.
func Instead(n int, answers http.HandlerFunc) Fault {
	return at(n, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { answers(w, r) })
}

// Slow passes request n on after a while.
func Slow(pause time.Duration) func(n int) Fault {
	return func(n int) Fault {
		return at(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			select {
			case <-r.Context().Done():
			case <-time.After(pause):
				next.ServeHTTP(w, r)
			}
		})
	}
}

// Hanging never answers request n.
func Hanging(n int) Fault {
	return at(n, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client is gone once it has read all
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
}

func at(n int, do func(http.ResponseWriter, *http.Request, http.Handler)) Fault {
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if i != n {
			next.ServeHTTP(w, r)
			return
		}
		do(w, r, next)
	}
}
