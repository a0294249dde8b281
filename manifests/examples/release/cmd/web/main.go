// Command web is the app of the example deployments, and the router in front of it.
//
//	web app :8080 NAME FILE       responds to each request with NAME, and counts the requests in FILE
//	web router :8080 HOST:PORT... forwards requests to these apps in turn, and responds to /healthz itself. After SIGUSR1, it is
//	                              unhealthy, but still forwards requests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
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
	usage := errors.New("usage: web app ADDRESS NAME FILE, or web router ADDRESS HOST:PORT [HOST:PORT...]")
	if len(args) < 3 || args[0] == "app" && len(args) != 4 {
		return usage
	}
	draining, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR1)
	defer stop()
	var handler http.Handler
	switch args[0] {
	case "app":
		handler = app(args[2], args[3])
	case "router":
		handler = router(draining, args[2:])
	default:
		return usage
	}
	server := &http.Server{Addr: args[1], Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// app responds with its name, and with the number of requests so far, which it keeps in the file.
func app(name, file string) http.Handler {
	var counting sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		counting.Lock()
		defer counting.Unlock()
		n, err := count(file)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "hello from %s: request %d\n", name, n)
	})
}

// count increments the number in the file, and returns it. A crash does not damage the file.
func count(file string) (n int, err error) {
	content, err := os.ReadFile(file)
	if err == nil {
		n, err = strconv.Atoi(string(content))
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		n++
		err = os.WriteFile(file+".new", []byte(strconv.Itoa(n)), 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return n, err
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
