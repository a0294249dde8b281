//go:build linux

package attach

import "time"

// ShortenPauses shortens the pauses between attempts until restore is called.
func ShortenPauses() (restore func()) {
	former := pause
	pause = time.Millisecond
	return func() { pause = former }
}
