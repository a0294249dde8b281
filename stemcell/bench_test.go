package stemcell_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// benchSize is the size of the stemcell's image, in bytes.
const benchSize = 600 << 20

// BenchmarkHeavyStemcell compares create_stemcell with `crane append`, which builds an image from the same archive and pushes it to the
// same registry. For both processes, it measures the time, the peak of resident memory (VmHWM), and the peak of anonymous memory (RssAnon),
// which excludes pages of the program file.
//
// Both hash the compressed archive, decompress and hash it for the image's configuration, and upload it unchanged. The registry discards
// uploads. scripts/build-tools builds crane.
func BenchmarkHeavyStemcell(b *testing.B) {
	crane, err := exec.LookPath("crane")
	if err != nil {
		b.Fatal("crane not found: run `scripts/build-tools crane`, and add the output of `scripts/build-tools --path crane` to $PATH")
	}
	dir := b.TempDir()
	program, image := filepath.Join(dir, "cpi"), filepath.Join(dir, "image")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "bosh-kubernetes-cpi/cmd/cpi")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the release
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if err := writeLargeImage(image); err != nil {
		b.Fatal(err)
	}
	registry := stemcells.NewRegistry(false)
	b.Cleanup(registry.Close)
	registry.SetFault(discardUploads)

	b.Run("cpi", func(b *testing.B) {
		config := filepath.Join(dir, "cpi.json")
		content := fmt.Sprintf(
			`{"agent": {"mbus": "nats://nats.test:4222"}, "kubernetes": {"stemcell": {"registry": {"repository": "%s/cpi", "insecure": true}}}}`,
			registry.Host())
		if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
		request := fmt.Sprintf(
			`{"method": "create_stemcell", "arguments": [%q, {"name": "bench", "version": "1"}], "context": {}, "api_version": 2}`, image)
		measure(b, func() *exec.Cmd {
			command := exec.Command(program, "-configPath", config)
			command.Stdin = strings.NewReader(request)
			return command
		}, func(out []byte) error {
			var response struct{ Result, Error any }
			if err := json.Unmarshal(out, &response); err != nil || response.Error != nil {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	})
	b.Run("crane", func(b *testing.B) {
		measure(b, func() *exec.Cmd {
			return exec.Command(crane, "append", "--insecure", "--new_layer", image, "--new_tag", registry.Host()+"/crane:1")
		}, func([]byte) error { return nil })
	})
}

// measure runs the commands in the benchmark loop, and reports the highest memory peaks.
func measure(b *testing.B, newCommand func() *exec.Cmd, check func([]byte) error) {
	var peak memory
	for b.Loop() {
		command := newCommand()
		var out, log bytes.Buffer
		command.Stdout, command.Stderr = &out, &log
		if err := command.Start(); err != nil {
			b.Fatal(err)
		}
		exited := make(chan struct{})
		peaks := watchMemory(command.Process.Pid, exited)
		err := command.Wait()
		close(exited)
		if err == nil {
			err = check(out.Bytes())
		}
		if err != nil {
			b.Fatalf("%v: %s", err, log.String())
		}
		peak = peak.max(<-peaks)
	}
	b.ReportMetric(float64(peak.resident)/1024, "peak-MiB")
	b.ReportMetric(float64(peak.anonymous)/1024, "own-MiB")
	b.SetBytes(benchSize)
}

// memory is the memory usage of a process, in KiB.
type memory struct{ resident, anonymous int }

func (m memory) max(other memory) memory {
	return memory{max(m.resident, other.resident), max(m.anonymous, other.anonymous)}
}

// watchMemory samples the memory usage of a process until it exits, and then sends the peaks. It does not use rusage, which includes the
// resident memory of this process at the fork.
func watchMemory(pid int, exited <-chan struct{}) <-chan memory {
	peaks := make(chan memory, 1)
	go func() {
		var peak memory
		defer func() { peaks <- peak }()
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-exited:
				return
			case <-ticker.C:
				peak = peak.max(memory{procStatusField(pid, "VmHWM:"), procStatusField(pid, "RssAnon:")})
			}
		}
	}()
	return peaks
}

// procStatusField returns a number in /proc/PID/status, or 0 if the process exited.
func procStatusField(pid int, name string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, found := strings.Cut(string(status), name)
	var kib int
	if err != nil || !found {
		return 0
	}
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0
	}
	return kib
}

// writeLargeImage writes a stemcell image of about benchSize. Half of its blocks repeat earlier blocks, so that it compresses like
// programs.
func writeLargeImage(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	compressed, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	config := []byte(stemcells.WardenAgentConfig)
	if err := archive.WriteHeader(&tar.Header{Name: "var/vcap/bosh/agent.json", Mode: 0o644, Size: int64(len(config))}); err != nil {
		return err
	}
	if _, err := archive.Write(config); err != nil {
		return err
	}
	source, block := rand.NewChaCha8([32]byte{}), make([]byte, 1<<20)
	for n := 0; ; n++ {
		written, err := file.Seek(0, 1)
		if err != nil || written >= benchSize {
			return closeAll(err, archive, compressed)
		}
		if err := archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("usr/lib/%d", n), Mode: 0o644, Size: int64(len(block))}); err != nil {
			return err
		}
		for offset := 0; offset < len(block); offset += 4096 {
			page := block[offset : offset+4096]
			if _, err := source.Read(page); err != nil {
				return err
			}
			for i := range page {
				page[i] &= 0x3f
			}
			if offset >= 8192 && offset%8192 == 0 {
				copy(page[:4000], block[offset-4096:])
			}
		}
		if _, err := archive.Write(block); err != nil {
			return err
		}
	}
}

func closeAll(err error, closers ...interface{ Close() error }) error {
	for _, closer := range closers {
		if closeErr := closer.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}
