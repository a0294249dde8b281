package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// temporaryPrefix is the prefix of the names of incomplete files. Runtimes ignore these files: they do not have the extension of a
// network configuration or the name of a plugin.
const temporaryPrefix = "." + PluginType + "-new-"

// writeFile replaces the file at path atomically, and reports whether the file was changed.
func writeFile(path string, mode fs.FileMode, content io.ReadSeeker) (bool, error) {
	same, err := fileMatches(path, mode, content)
	if err != nil {
		return false, fmt.Errorf("compare %s: %w", path, err)
	}
	if same {
		return false, nil
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), temporaryPrefix)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(file.Name()) // fails after the rename, which is fine
	_, err = io.Copy(file, content)
	// Sync before the rename: a node that loses power must not have an empty file afterwards.
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// fileMatches reports whether the file exists with this content and mode.
func fileMatches(path string, mode fs.FileMode, content io.ReadSeeker) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	if info.Mode().Perm() != mode || info.Size() != size {
		return false, nil
	}
	return sameContent(file, content)
}

func sameContent(a, b io.Reader) (bool, error) {
	left, right := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		eof := errors.Is(errA, io.EOF) || errors.Is(errA, io.ErrUnexpectedEOF)
		switch {
		case eof:
			return errors.Is(errB, errA), nil
		case errA != nil || errB != nil:
			return false, errors.Join(errA, errB)
		}
	}
}

// removeTemporaryFiles removes incomplete files of an installer that was killed.
func removeTemporaryFiles(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, temporaryPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := remove(path); err != nil {
			return err
		}
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
