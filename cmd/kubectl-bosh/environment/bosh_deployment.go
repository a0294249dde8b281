package environment

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

// maxDeploymentBytes limits the size of bosh-deployment, which has 1 MB.
const maxDeploymentBytes = 64 << 20

// deploymentTimeout limits the time to download bosh-deployment.
const deploymentTimeout = 5 * time.Minute

// PublishedManifest is the path in the directory of the manifest that FetchDeployment downloads.
const PublishedManifest = "bosh-deployment/bosh.yml"

// FetchDeployment downloads the bosh-deployment that was published with this program to the directory, unless it has one.
func (d Dir) FetchDeployment(ctx context.Context, published PublishedFile) error {
	path := d.filePath(filepath.Dir(PublishedManifest))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deploymentTimeout)
	defer cancel()
	archive, err := download(ctx, published, maxDeploymentBytes)
	if err != nil {
		return fmt.Errorf("%w; check the network, or set --bosh-deployment to a checkout of https://github.com/cloudfoundry/bosh-deployment", err)
	}
	incomplete := path + ".new"
	if err := os.RemoveAll(incomplete); err != nil {
		return err
	}
	if err := extract(archive, incomplete); err != nil {
		return fmt.Errorf("%s: %w", published.URL, err)
	}
	return os.Rename(incomplete, path)
}

// download returns the content of a published file, after a check of its checksum.
func download(ctx context.Context, published PublishedFile, maxBytes int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, published.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", published.URL, response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", published.URL, err)
	}
	if checksum := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); checksum != published.Checksum {
		return nil, fmt.Errorf("%s has checksum %s, but %s was published", published.URL, checksum, published.Checksum)
	}
	return content, nil
}

// extract writes the files of a gzipped tar archive to a new directory, without the first directory in their names.
func extract(archive []byte, dir string) error {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	reader := tar.NewReader(plain)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(header.Name, "/")
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(reader, maxDeploymentBytes))
		if err != nil {
			return err
		}
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil { // also creates the environment directory, with secrets
			return err
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			return err
		}
	}
}
