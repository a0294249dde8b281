package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// HoldPoint is the point at which a request is held, relative to its handling by the API server.
type HoldPoint string

// Points at which a gate holds a request. A watch is always held before the API server handles it.
const (
	HeldBefore   HoldPoint = "before"
	ResponseLost HoldPoint = "after, with a lost response"
)

// Gate holds requests until it is opened.
type Gate struct {
	// Reached is closed when the first request is held.
	Reached <-chan struct{}
	// Open lets all requests continue.
	Open func()

	reach  func()
	opened chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	reached, opened := make(chan struct{}), make(chan struct{})
	return &Gate{
		Reached: reached, reach: sync.OnceFunc(func() { close(reached) }),
		opened: opened, Open: sync.OnceFunc(func() { close(opened) }),
	}
}

// Hold holds matching requests at this point.
func (g *Gate) Hold(point HoldPoint, matches func(n int, r *http.Request) bool) Fault {
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case !matches(n, r):
			next.ServeHTTP(w, r)
		case point == HeldBefore || isWatch(r):
			g.wait()
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(httptest.NewRecorder(), r)
			g.wait()
			panic(http.ErrAbortHandler)
		}
	}
}

func (g *Gate) wait() {
	g.reach()
	<-g.opened
}
