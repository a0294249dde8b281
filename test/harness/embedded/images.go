package embedded

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Images that are imported to every node, so that it needs no registry for them.
const (
	PauseImage   = "embedded.test/pause:1"
	BusyboxImage = "embedded.test/busybox:1"
)

func (n *Node) importImages(ctx context.Context) error {
	existing, err := n.Ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return err
	}
	for tag, files := range map[string]func() (map[string]string, error){PauseImage: pauseFiles, BusyboxImage: busyboxFiles} {
		if strings.Contains(existing, tag) {
			continue
		}
		content, err := files()
		if err != nil {
			return err
		}
		archive := n.file("image.tar")
		if err := writeImage(archive, tag, content); err != nil {
			return err
		}
		if _, err := n.Ctr(ctx, "images", "import", archive); err != nil {
			return err
		}
		_ = os.Remove(archive)
	}
	return nil
}

// pauseFiles returns the pause program in $PATH. `make` builds it.
func pauseFiles() (map[string]string, error) {
	path, err := exec.LookPath("embedded-pause")
	return map[string]string{"pause": path}, err
}

func busyboxFiles() (map[string]string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("static busybox not found; run apt-get install busybox-static (%w)", err)
	}
	files := map[string]string{}
	for _, applet := range []string{"sh", "mkdir", "rm", "chmod", "ls", "cat", "sleep", "httpd", "nc", "wget"} {
		files["bin/"+applet] = path
	}
	return files, nil
}

// writeImage writes an image archive with these programs, given as target and source paths.
func writeImage(archive, tag string, files map[string]string) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	layer, err := newLayer(files)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config = v1.Config{Env: []string{"PATH=/bin"}}
	if _, ok := files["pause"]; ok {
		config.Config.Entrypoint = []string{"/pause"}
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	return tarball.WriteToFile(archive, reference, image)
}

func newLayer(files map[string]string) (v1.Layer, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	if err := writer.WriteHeader(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
		return nil, err
	}
	for target, source := range files {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		if err := writer.WriteHeader(&tar.Header{Name: filepath.Clean(target), Mode: 0o755, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(content); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
}
