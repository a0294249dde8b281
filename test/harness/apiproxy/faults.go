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

// Forward injects no fault.
func Forward(int) Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }
}

// Unavailable responds to request n with a 503 without Retry-After.
func Unavailable(n int) Fault {
	return ErrorStatus(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)(n)
}

// ErrorStatus responds to request n like an API server, with a Status that has this code and reason.
func ErrorStatus(code int, reason metav1.StatusReason) func(n int) Fault {
	return respondWithStatus(code, reason, "")
}

// Throttled responds to request n with a 429 and a Retry-After of this many seconds.
func Throttled(seconds int) func(n int) Fault {
	return respondWithStatus(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, strconv.Itoa(seconds))
}

func respondWithStatus(code int, reason metav1.StatusReason, retryAfter string) func(n int) Fault {
	return func(n int) Fault {
		return atRequest(n, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/json")
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"injected by a test"}`, reason, code)
		})
	}
}

// ProxyError responds to every request with the code and plain text, like a proxy without a connection to its API server.
func ProxyError(code int) Fault {
	return func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "no such backend", code)
	}
}

// ProxyErrorAt is ProxyError for request n only.
func ProxyErrorAt(code int) func(n int) Fault {
	return func(n int) Fault {
		return atRequest(n, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { http.Error(w, "no such backend", code) })
	}
}

// ResetBefore breaks the connection instead of forwarding request n.
func ResetBefore(n int) Fault {
	return BeforeRequest(n, func() bool { return false })
}

// ResetAfter forwards request n, and breaks the connection instead of responding.
func ResetAfter(n int) Fault {
	return AfterRequest(n, func() {})
}

// TruncatedBody forwards request n, and breaks the connection in the middle of the response body.
func TruncatedBody(n int) Fault {
	return WithinResponse(n, func() {})
}

// BeforeRequest calls do, and forwards request n if do returns true. Otherwise it breaks the connection.
func BeforeRequest(n int, do func() bool) Fault {
	return atRequest(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !do() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// AfterRequest forwards request n, calls do, and breaks the connection instead of responding.
func AfterRequest(n int, do func()) Fault {
	return atRequest(n, func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isWatch(r) {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		do()
		panic(http.ErrAbortHandler)
	})
}

// WithinResponse forwards request n, sends half of the response body, calls do, and breaks the connection.
func WithinResponse(n int, do func()) Fault {
	return atRequest(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isWatch(r) {
			writeHalf(w, r, next)
		}
		do()
		panic(http.ErrAbortHandler)
	})
}

func writeHalf(w http.ResponseWriter, r *http.Request, next http.Handler) {
	response := httptest.NewRecorder()
	next.ServeHTTP(response, r)
	body := response.Body.Bytes()
	maps.Copy(w.Header(), response.Header())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(response.Code)
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
}

// ReplaceResponse passes request n to handler instead of forwarding it.
func ReplaceResponse(n int, handler http.HandlerFunc) Fault {
	return atRequest(n, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { handler(w, r) })
}

// DelayedRequest forwards request n after a pause.
func DelayedRequest(pause time.Duration) func(n int) Fault {
	return func(n int) Fault {
		return atRequest(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			select {
			case <-r.Context().Done():
			case <-time.After(pause):
				next.ServeHTTP(w, r)
			}
		})
	}
}

// NoResponse never responds to request n.
func NoResponse(n int) Fault {
	return atRequest(n, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body) // a server detects a disconnected client only after it read the body
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
}

func atRequest(n int, do func(http.ResponseWriter, *http.Request, http.Handler)) Fault {
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if i != n {
			next.ServeHTTP(w, r)
			return
		}
		do(w, r, next)
	}
}
