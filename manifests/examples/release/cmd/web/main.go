// Command web is the app of the example deployments, and the router in front of it.
//
//	web app :8080 NAME            responds to each request with NAME
//	web router :8080 HOST:PORT... forwards requests to these apps in turn, and responds to /healthz itself. After SIGUSR1, it is
//	                              unhealthy, but still forwards requests.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatalln("web:", err)
	}
}

func run(args []string) error {
	const usage = "usage: web app ADDRESS NAME, or web router ADDRESS HOST:PORT [HOST:PORT...]"
	if len(args) < 3 {
		return errors.New(usage)
	}
	draining, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR1)
	defer stop()
	var handler http.Handler
	switch args[0] {
	case "app":
		handler = app(args[2])
	case "router":
		handler = router(draining, args[2:])
	default:
		return errors.New(usage)
	}
	server := &http.Server{Addr: args[1], Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

func app(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from", name) })
}

// router forwards requests to the apps in turn. If an app does not respond, the client gets a 502 and may retry. When draining is done,
// the router is unhealthy.
func router(draining context.Context, apps []string) http.Handler {
	var requests atomic.Uint64
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if draining.Err() != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(request *httputil.ProxyRequest) {
		next := apps[requests.Add(1)%uint64(len(apps))]
		request.SetURL(&url.URL{Scheme: "http", Host: next})
		request.SetXForwarded()
	}})
	return mux
}
