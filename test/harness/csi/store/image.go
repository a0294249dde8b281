package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CreateImage creates a sparse file of the size. It overwrites an existing file: that is orphaned, because records are written after
// images.
func CreateImage(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return fmt.Errorf("set size of %s: %w", path, err)
	}
	return file.Sync()
}

// GrowImage grows the file to the size. It does nothing if the file is larger.
func GrowImage(path string, size int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() >= size {
		return err
	}
	return os.Truncate(path, size)
}

// CopyImage copies source to target. It shares the blocks if the filesystem supports that. Otherwise, it copies the data without the
// holes.
func CopyImage(ctx context.Context, source, target string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) != nil {
		if err := copySparse(ctx, from, to); err != nil {
			return fmt.Errorf("copy %s to %s: %w", source, target, err)
		}
	}
	return to.Sync()
}

// copyChunkSize is the number of bytes to copy between checks of the context.
const copyChunkSize = 64 << 20

func copySparse(ctx context.Context, from, to *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	for offset := int64(0); offset < info.Size(); {
		begin, err := from.Seek(offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // the rest is a hole
		}
		if err != nil {
			return err
		}
		end, err := from.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := copyRange(ctx, from, to, begin, end); err != nil {
			return err
		}
		offset = end
	}
	return nil
}

func copyRange(ctx context.Context, from, to *os.File, begin, end int64) error {
	for begin < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := from.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		// CopyN uses copy_file_range.
		count, err := io.CopyN(to, from, min(copyChunkSize, end-begin))
		if err != nil {
			return err
		}
		begin += count
	}
	return nil
}
