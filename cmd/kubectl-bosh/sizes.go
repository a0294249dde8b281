package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// sizes are those of a terminal: that which it has, and each that it gets, until the context ends.
type sizes struct {
	ctx      context.Context
	terminal int
	changes  chan os.Signal
}

func newSizes(ctx context.Context, terminal int) *sizes {
	s := &sizes{ctx: ctx, terminal: terminal, changes: make(chan os.Signal, 1)}
	s.changes <- syscall.SIGWINCH // the first
	signal.Notify(s.changes, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(s.changes) })
	return s
}

// Next waits for a size, and returns nil when there is none any more.
func (s *sizes) Next() *remotecommand.TerminalSize {
	select {
	case <-s.changes:
	case <-s.ctx.Done():
		return nil
	}
	width, height, err := term.GetSize(s.terminal)
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
}
