//go:build linux

package system

import (
	"context"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// SIGRTMin is SIGRTMIN of the C library, to which systemd(1) refers.
const SIGRTMin = unix.Signal(34)

// WithStop returns a context that ends with a signal to stop. It is one of the signals that may stop a container: the kubelet sends the one
// that the image specifies, for example SIGRTMIN+3 for systemd. Later signals have no effect.
func WithStop(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, SIGRTMin+3)
}

// Pause waits, and fails if ctx ends first.
func Pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}
