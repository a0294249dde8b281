// Command web is the app of the examples, and the router in front of it.
//
//	web app :8080 NAME            answers each request with NAME
//	web router :8080 HOST:PORT... passes requests on to these, in turn; /healthz is answered by the router itself
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
	const usage = "give app ADDRESS NAME, or router ADDRESS HOST:PORT, and more of these"
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

// router asks each app in turn; an app that does not answer is a 502 for the client, who may ask again.
func router(apps []string) http.Handler {
	var asked atomic.Uint64
	routes := http.NewServeMux()
	routes.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	routes.Handle("/", &httputil.ReverseProxy{Rewrite: func(request *httputil.ProxyRequest) {
		next := apps[asked.Add(1)%uint64(len(apps))]
		request.SetURL(&url.URL{Scheme: "http", Host: next})
		request.SetXForwarded()
	}})
	return routes
}
