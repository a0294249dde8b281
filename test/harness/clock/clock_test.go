//go:build linux && amd64

package clock_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/clock"
)

// clockReaderSource is a program that prints two numbers for each line of its input: the time of the wall clock, and the time elapsed on
// the monotonic clock.
const clockReaderSource = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().Unix(), int64(time.Since(start)))
	}
	os.Exit(7)
}
`

func TestWallClockJumps(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	fakeClock, err := clock.New(dir)
	g.Expect(err).NotTo(HaveOccurred())
	source := filepath.Join(dir, "reader.go")
	g.Expect(os.WriteFile(source, []byte(clockReaderSource), 0o600)).To(Succeed())
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "reader"), source).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))

	prefix := fakeClock.CommandPrefix()
	command := exec.CommandContext(t.Context(), prefix[0], append(prefix[1:], filepath.Join(dir, "reader"))...)
	stdin, err := command.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	stdout, err := command.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	command.Stderr = os.Stderr
	g.Expect(command.Start()).To(Succeed())
	for _, offset := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		g.Expect(fakeClock.Set(offset)).To(Succeed())
		_, err := stdin.Write([]byte("\n"))
		g.Expect(err).NotTo(HaveOccurred())
		line := make([]byte, 100)
		n, err := stdout.Read(line)
		g.Expect(err).NotTo(HaveOccurred())
		var wallClock, elapsed int64
		_, err = fmt.Sscan(strings.TrimSpace(string(line[:n])), &wallClock, &elapsed)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Unix(wallClock, 0)).To(BeTemporally("~", time.Now().Add(offset), time.Minute))
		g.Expect(time.Duration(elapsed)).To(BeNumerically("<", time.Minute))
	}
	g.Expect(stdin.Close()).To(Succeed())
	g.Expect(command.Wait()).To(MatchError("exit status 7"))
}
