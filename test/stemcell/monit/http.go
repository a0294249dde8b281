package monit

import (
	"context"
	"crypto/subtle"
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// listen listens on the address. It returns a nil listener for an empty address.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start the HTTP interface: %w", err)
	}
	return listener, nil
}

// handler serves monit's status and its service actions.
func (d *Daemon) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.authorized(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="monit"`)
			http.Error(w, "You are not authorized to access monit. Either you supplied the wrong credentials, "+
				"or your browser does not understand how to supply the credentials required", http.StatusUnauthorized)
			return
		}
		switch service := strings.TrimPrefix(r.URL.Path, "/"); service {
		case "_status", "_status2":
			d.writeStatus(w)
		case "_ping":
			fmt.Fprintln(w, "pong")
		default:
			d.queueAction(w, service, r.FormValue("action"))
		}
	})
}

func (d *Daemon) authorized(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	d.mutex.Lock()
	defer d.mutex.Unlock()
	expected, exists := d.config.Users[user]
	return ok && exists && subtle.ConstantTimeCompare([]byte(expected), []byte(password)) == 1
}

func (d *Daemon) writeStatus(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/xml")
	// monit declares ISO-8859-1. The status is pure ASCII, so it needs no conversion.
	fmt.Fprintln(w, `<?xml version="1.0" encoding="ISO-8859-1"?>`)
	_ = xml.NewEncoder(w).Encode(d.status())
}

// queueAction queues the action for the daemon's loop, or prints the status if the request names none.
func (d *Daemon) queueAction(w http.ResponseWriter, name, requested string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	s := d.find(name)
	if s == nil {
		http.Error(w, "There is no service by that name", http.StatusNotFound)
		return
	}
	if requested == "" {
		fmt.Fprintf(w, "Process '%s' %s\n", s.Name, s.status().summary())
		return
	}
	action, ok := parseAction(requested)
	if !ok || action == Alert || action == Exec {
		http.Error(w, "Invalid action", http.StatusBadRequest)
		return
	}
	s.pending = action
	d.log.printf("info", "'%s' %s on user request", s.Name, action)
	d.Wake()
}
