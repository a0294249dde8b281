//go:build linux

package probe

import (
	"context"
	"fmt"
	"net"
	"time"

	"bosh-kubernetes-cpi/cpi/node/system"
)

const (
	connectTimeout = 5 * time.Second
	connectTries   = 10
	connectPause   = time.Second
)

// connect connects to HOST:PORT.
func connect(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: connectTimeout}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// connectToItself returns nil if this Pod can connect to itself through the Service, NAME:PORT. It retries, because the endpoint may not
// exist yet.
func connectToItself(ctx context.Context, service string) error {
	_, port, err := net.SplitHostPort(service)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", ":"+port)
	if err != nil {
		return err
	}
	defer listener.Close() // it ends the server

	go serve(listener)
	for range connectTries {
		if err = connect(ctx, service); err == nil {
			return nil
		}
		if stopped := system.Pause(ctx, connectPause); stopped != nil {
			return fmt.Errorf("%w: %w", stopped, err)
		}
	}
	return err
}

// serve accepts connections, and closes them, until the listener is closed.
func serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		_ = connection.Close()
	}
}
