package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// proxyLog writes lines with the time. It writes the same line at most once a minute: clients may retry often.
type proxyLog struct {
	to          io.Writer
	mutex       sync.Mutex
	lastPrinted map[string]time.Time
}

func (l *proxyLog) print(line string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	if now.Sub(l.lastPrinted[line]) < time.Minute {
		return
	}
	if l.lastPrinted == nil || len(l.lastPrinted) > 1000 {
		l.lastPrinted = map[string]time.Time{}
	}
	l.lastPrinted[line] = now
	fmt.Fprintf(l.to, "%s kubectl bosh proxy: %s\n", now.Format(time.TimeOnly), linkDocs(line))
}
