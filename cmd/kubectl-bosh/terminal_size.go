package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// terminalSizes is the queue of a terminal's sizes: the current size, and each new size until the context is canceled.
type terminalSizes struct {
	ctx      context.Context
	terminal int
	changes  chan os.Signal
}

func newTerminalSizes(ctx context.Context, terminal int) *terminalSizes {
	s := &terminalSizes{ctx: ctx, terminal: terminal, changes: make(chan os.Signal, 1)}
	s.changes <- syscall.SIGWINCH // for the current size
	signal.Notify(s.changes, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(s.changes) })
	return s
}

// Next waits for the next size. It returns nil after the last one.
func (s *terminalSizes) Next() *remotecommand.TerminalSize {
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
