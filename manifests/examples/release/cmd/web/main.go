// Command web is the app of the example deployments, and the router in front of it.
//
//	web app :8080 NAME            answers each request with NAME
//	web router :8080 HOST:PORT... forwards requests to these, in turn; the router itself answers /healthz
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatalln("web:", err)
	}
}

func run(arguments []string) error {
	const usage = "usage: web app ADDRESS NAME, or web router ADDRESS HOST:PORT [HOST:PORT...]"
	if len(arguments) < 3 {
		return errors.New(usage)
	}
	var handler http.Handler
	switch arguments[0] {
	case "app":
		handler = app(arguments[2])
	case "router":
		handler = router(arguments[2:])
	default:
		return errors.New(usage)
	}
	server := &http.Server{Addr: arguments[1], Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

func app(name string) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "hello from", name) })
}

// router forwards requests to the apps in turn. If an app does not answer, the client gets a 502 and may try again.
func router(apps []string) http.Handler {
	var requests atomic.Uint64
	routes := http.NewServeMux()
	routes.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	routes.Handle("/", &httputil.ReverseProxy{Rewrite: func(request *httputil.ProxyRequest) {
		next := apps[requests.Add(1)%uint64(len(apps))]
		request.SetURL(&url.URL{Scheme: "http", Host: next})
		request.SetXForwarded()
	}})
	return routes
}
