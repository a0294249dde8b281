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

// temporary begins the names of files that are being written. Runtimes ignore them: they have none of
// the extensions of a network, and are no plugin's name.
const temporary = "." + PluginType + "-new-"

// put makes path hold this content with this mode, at once: readers see the old file or the new one.
// It reports whether that changed anything.
func put(path string, mode fs.FileMode, content io.ReadSeeker) (bool, error) {
	same, err := holds(path, mode, content)
	if err != nil {
		return false, fmt.Errorf("compare %s: %w", path, err)
	}
	if same {
		return false, nil
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), temporary)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(file.Name()) // fails once it is renamed
	_, err = io.Copy(file, content)
	// On disk before it gets its name: a node that loses power must not come up with an empty file.
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// holds reports whether the file is there with this content and mode.
func holds(path string, mode fs.FileMode, content io.ReadSeeker) (bool, error) {
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
	return equal(file, content)
}

func equal(a, b io.Reader) (bool, error) {
	left, right := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		ended := errors.Is(errA, io.EOF) || errors.Is(errA, io.ErrUnexpectedEOF)
		switch {
		case ended:
			return errors.Is(errB, errA), nil
		case errA != nil || errB != nil:
			return false, errors.Join(errA, errB)
		}
	}
}

// sweep removes what an installer that was killed left half-written.
func sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, temporary+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
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
