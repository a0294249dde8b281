package stemcell

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is the image layer of a root filesystem: its unchanged file. The upload and the scan of the file run at the same time. The upload
// withholds the last bytes until the scan succeeds, so that the registry never completes the upload of a damaged file.
type layer struct {
	fs       *rootfs
	log      *slog.Logger
	scanned  chan struct{} // closed when contents and err are set
	contents *contents
	err      error
}

// newLayer returns the layer and starts the scan of the archive, which stops when the context ends.
func newLayer(ctx context.Context, fs *rootfs, log *slog.Logger) *layer {
	l := &layer{fs: fs, log: log, scanned: make(chan struct{})}
	go func() {
		defer close(l.scanned)
		l.contents, l.err = fs.scan(ctx)
	}()
	return l
}

// wait waits for the scan, and returns its result.
func (l *layer) wait() (*contents, error) {
	<-l.scanned
	return l.contents, l.err
}

// scanError returns the error of the scan if it already failed.
func (l *layer) scanError() error {
	select {
	case <-l.scanned:
		return l.err
	default:
		return nil
	}
}

// Digest returns the digest of the file.
func (l *layer) Digest() (v1.Hash, error) { return l.fs.digest, nil }

// DiffID returns the digest of the uncompressed archive.
func (l *layer) DiffID() (v1.Hash, error) {
	contents, err := l.wait()
	if err != nil {
		return v1.Hash{}, err
	}
	return contents.diffID, nil
}

// Size returns the size of the file in bytes.
func (l *layer) Size() (int64, error) { return l.fs.size, nil }

// MediaType returns the media type for a compressed or uncompressed archive.
func (l *layer) MediaType() (types.MediaType, error) { return l.fs.mediaType(), nil }

// Uncompressed implements v1.Layer. A push does not call it.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return nil, errors.New("the layer of a root filesystem has no uncompressed form")
}

// Compressed returns a reader of the file.
func (l *layer) Compressed() (io.ReadCloser, error) {
	file, err := os.Open(l.fs.path)
	if err != nil {
		return nil, err
	}
	return &upload{layer: l, file: file}, nil
}

// upload is one attempt to upload the layer.
type upload struct {
	layer        *layer
	file         *os.File
	sent         int64 // bytes
	loggedTenths int64
}

func (u *upload) Read(p []byte) (int, error) {
	if err := u.layer.scanError(); err != nil {
		return 0, err
	}
	n, err := u.file.Read(p)
	u.sent += int64(n)
	if u.sent >= u.layer.fs.size {
		if _, err := u.layer.wait(); err != nil {
			return 0, err
		}
	}
	if tenths := u.sent * 10 / max(u.layer.fs.size, 1); tenths > u.loggedTenths {
		u.loggedTenths = tenths
		u.layer.log.Info("pushing the image of the stemcell", "percent", tenths*10, "mib", u.sent>>20)
	}
	return n, err
}

func (u *upload) Close() error { return u.file.Close() }
