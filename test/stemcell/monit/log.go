package monit

import (
	"fmt"
	"io"
	"os"
	"time"
)

// logger writes lines like "[UTC Nov 22 02:47:00] info     : 'keeper' start: /var/vcap/…".
type logger struct{ out io.Writer }

func openLog(path string) (*logger, error) {
	if path == "" || path == "syslog" {
		return &logger{out: os.Stderr}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the log file: %w", err)
	}
	return &logger{out: file}, nil
}

func (l *logger) printf(level, format string, arguments ...any) {
	line := fmt.Sprintf(format, arguments...)
	fmt.Fprintf(l.out, "[%s] %-9s: %s\n", time.Now().Format("MST Jan _2 15:04:05"), level, line)
}
