package embedded

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// ServeRegistry serves a container registry on loopback until it fails. It stores blobs in dir, and manifests in memory. Images must
// be pushed again after a restart, but only their manifests are uploaded then.
func ServeRegistry(port int, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	server := &http.Server{
		Addr: fmt.Sprintf("127.0.0.1:%d", port),
		Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)),
			registry.WithBlobHandler(registry.NewDiskBlobHandler(filepath.Clean(dir)))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return server.ListenAndServe()
}
