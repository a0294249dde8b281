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

	"bosh-kubernetes-cpi/test/stemcells"
)

// benchSize is the size of the stemcell's image, in bytes.
const benchSize = 600 << 20

// BenchmarkHeavyStemcell measures the CPI's process for create_stemcell beside `crane append`, whose one
// process makes an image of the same archive and pushes it, too, to the same registry: time, the peak of
// resident memory (VmHWM), and the peak of what of it is the process's own (RssAnon) and not pages of the
// program's file. Both read and hash the gzipped archive, unzip and hash it for the image's
// configuration, and send it as it is; neither compresses. The registry throws away what it is sent.
// scripts/build-tools makes crane.
func BenchmarkHeavyStemcell(b *testing.B) {
	crane, err := exec.LookPath("crane")
	if err != nil {
		b.Fatal("crane is not there: scripts/build-tools crane, and put scripts/build-tools --path crane into $PATH")
	}
	folder := b.TempDir()
	program, image := filepath.Join(folder, "cpi"), filepath.Join(folder, "image")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "bosh-kubernetes-cpi/cmd/cpi")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the release has it
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if err := largeImage(image); err != nil {
		b.Fatal(err)
	}
	registry := stemcells.NewRegistry(false)
	b.Cleanup(registry.Close)
	registry.SetFault(discardUploads)

	b.Run("cpi", func(b *testing.B) {
		config := filepath.Join(folder, "cpi.json")
		content := fmt.Sprintf(`{"agent": {"mbus": "nats://nats.test:4222"}, "stemcell": {"registry": {"repository": "%s/cpi", "insecure": true}}}`, registry.Host())
		if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
		request := fmt.Sprintf(`{"method": "create_stemcell", "arguments": [%q, {"name": "bench", "version": "1"}], "context": {}, "api_version": 2}`, image)
		measure(b, func() *exec.Cmd {
			command := exec.Command(program, "-configPath", config)
			command.Stdin = strings.NewReader(request)
			return command
		}, func(out []byte) error {
			var answer struct{ Result, Error any }
			if err := json.Unmarshal(out, &answer); err != nil || answer.Error != nil {
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

// measure runs the command b.N times and reports the largest of their peaks of memory.
func measure(b *testing.B, command func() *exec.Cmd, check func([]byte) error) {
	var peak memory
	for b.Loop() {
		run := command()
		var out, log bytes.Buffer
		run.Stdout, run.Stderr = &out, &log
		if err := run.Start(); err != nil {
			b.Fatal(err)
		}
		ended := make(chan struct{})
		peaks := watchMemory(run.Process.Pid, ended)
		err := run.Wait()
		close(ended)
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

// memory is a process's, in KiB.
type memory struct{ resident, anonymous int }

func (m memory) max(other memory) memory {
	return memory{max(m.resident, other.resident), max(m.anonymous, other.anonymous)}
}

// watchMemory returns the peaks of a process's memory when it has ended. rusage would count what this
// process had resident when it forked, too.
func watchMemory(pid int, ended <-chan struct{}) <-chan memory {
	peaks := make(chan memory, 1)
	go func() {
		var peak memory
		defer func() { peaks <- peak }()
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				peak = peak.max(memory{procStatusField(pid, "VmHWM:"), procStatusField(pid, "RssAnon:")})
			}
		}
	}()
	return peaks
}

// procStatusField is a number in a process's /proc/PID/status, 0 when it has ended.
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

// largeImage writes a stemcell's image of about benchSize that compresses as programs do: half of its
// blocks are like ones before them.
func largeImage(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	zipped, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
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
			return closeAll(err, archive, zipped)
		}
		if err := archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("usr/lib/%d", n), Mode: 0o644, Size: int64(len(block))}); err != nil {
			return err
		}
		for at := 0; at < len(block); at += 4096 {
			part := block[at : at+4096]
			if _, err := source.Read(part); err != nil {
				return err
			}
			for i := range part {
				part[i] &= 0x3f
			}
			if at >= 8192 && at%8192 == 0 {
				copy(part[:4000], block[at-4096:])
			}
		}
		if _, err := archive.Write(block); err != nil {
			return err
		}
	}
}

func closeAll(err error, closers ...interface{ Close() error }) error {
	for _, each := range closers {
		if closeErr := each.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}
