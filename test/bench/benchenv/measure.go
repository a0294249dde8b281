package benchenv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"bosh-kubernetes-cpi/test/bench/report"
)

// Measure runs a program through the launcher, with a minimal environment as in a director. It returns the program's usage and stdout.
func Measure(ctx context.Context, launcher string, input []byte, program string, args ...string) (report.Usage, []byte, error) {
	var usage report.Usage
	reader, writer, err := os.Pipe()
	if err != nil {
		return usage, nil, err
	}
	defer reader.Close()
	command := exec.CommandContext(ctx, launcher, append([]string{program}, args...)...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	command.Stdin = bytes.NewReader(input)
	command.ExtraFiles = []*os.File{writer}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	writer.Close() // otherwise the reader would wait for more data
	if err != nil {
		return usage, stdout.Bytes(), fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	err = json.NewDecoder(reader).Decode(&usage)
	return usage, stdout.Bytes(), err
}
