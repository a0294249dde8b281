// Command monit-proxy stands between the BOSH agent and Debian's monit in the test stemcell.
//
// BOSH's stemcells carry monit 5.2.5; since 5.20 monit refuses a POST without a double-submitted
// security token (a cookie and a form field of equal value), which the agent does not send. The proxy
// adds it and changes nothing else.
package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

const token = "agent"

func main() {
	monit := &url.URL{Scheme: "http", Host: "127.0.0.1:2823"}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(monit)
		if r.Out.Method != http.MethodPost {
			return
		}
		form, err := io.ReadAll(r.Out.Body)
		if err != nil {
			log.Print(err)
			return
		}
		body := string(form) + "&securitytoken=" + token
		r.Out.Body, r.Out.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		r.Out.Header.Set("Cookie", "securitytoken="+token)
		r.Out.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}}
	log.Fatal(http.ListenAndServe("127.0.0.1:2822", proxy))
}
