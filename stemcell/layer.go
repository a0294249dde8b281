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

// layer is a root filesystem on its way to a registry: the file as it is. It is uploaded while it is
// still being checked; its last bytes are held back until the check is over, so that the registry
// never completes the upload of a damaged one.
type layer struct {
	fs      *rootfs
	log     *slog.Logger
	checked chan struct{} // closed when found and err are set
	found   *contents
	err     error
}

// newLayer begins to check the archive, and goes on until it is done or the context ends.
func newLayer(ctx context.Context, fs *rootfs, log *slog.Logger) *layer {
	l := &layer{fs: fs, log: log, checked: make(chan struct{})}
	go func() {
		defer close(l.checked)
		l.found, l.err = fs.scan(ctx)
	}()
	return l
}

// wait returns what is in the archive, once all of it has been checked.
func (l *layer) wait() (*contents, error) {
	<-l.checked
	return l.found, l.err
}

// checkDone reports whether the check is over, and with which error.
func (l *layer) checkDone() (bool, error) {
	select {
	case <-l.checked:
		return true, l.err
	default:
		return false, nil
	}
}

// Digest is that of the file.
func (l *layer) Digest() (v1.Hash, error) { return l.fs.digest, nil }

// DiffID is the digest of the archive without its compression.
func (l *layer) DiffID() (v1.Hash, error) {
	found, err := l.wait()
	if err != nil {
		return v1.Hash{}, err
	}
	return found.diffID, nil
}

// Size is the file's, in bytes.
func (l *layer) Size() (int64, error) { return l.fs.size, nil }

// MediaType tells whether the archive is gzipped.
func (l *layer) MediaType() (types.MediaType, error) { return l.fs.mediaType(), nil }

// Uncompressed is nothing that pushing needs.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return nil, errors.New("a root filesystem is pushed as it is")
}

// Compressed is the file, from its beginning.
func (l *layer) Compressed() (io.ReadCloser, error) {
	file, err := os.Open(l.fs.path)
	if err != nil {
		return nil, err
	}
	return &upload{layer: l, file: file}, nil
}

// upload is one try to send the layer.
type upload struct {
	layer *layer
	file  *os.File
	sent  int64
	tenth int64
}

func (u *upload) Read(p []byte) (int, error) {
	if _, bad := u.layer.checkDone(); bad != nil {
		return 0, bad
	}
	n, err := u.file.Read(p)
	u.sent += int64(n)
	if u.sent >= u.layer.fs.size {
		if _, bad := u.layer.wait(); bad != nil {
			return 0, bad
		}
	}
	if tenth := u.sent * 10 / max(u.layer.fs.size, 1); tenth > u.tenth {
		u.tenth = tenth
		u.layer.log.Info("pushing the stemcell's image", "percent", tenth*10, "mib", u.sent>>20)
	}
	return n, err
}

func (u *upload) Close() error { return u.file.Close() }
