package store

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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

// CopyImage copies source to target. It shares the blocks if the filesystem supports that, and does not copy holes.
func CopyImage(ctx context.Context, source, target string) error {
	output, err := exec.CommandContext(ctx, "cp", "--reflink=auto", "--sparse=always", "--", source, target).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w: %s", source, target, err, output)
	}
	file, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
