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

// temporaryPrefix marks incomplete files. Runtimes ignore these files, because they have neither the extension of a network
// configuration nor the name of a plugin.
const temporaryPrefix = "." + PluginType + "-new-"

// writeFile replaces the file at path atomically, and reports whether it changed the file.
func writeFile(path string, mode fs.FileMode, content io.ReadSeeker) (bool, error) {
	matches, err := fileMatches(path, mode, content)
	if err != nil {
		return false, fmt.Errorf("compare %s: %w", path, err)
	}
	if matches {
		return false, nil
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), temporaryPrefix)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(file.Name()) // no-op after the rename
	_, err = io.Copy(file, content)
	// Sync before the rename: a power failure must not leave an empty file.
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// fileMatches reports whether the file exists with the given content and mode.
func fileMatches(path string, mode fs.FileMode, content io.Reader) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Mode().Perm() != mode {
		return false, err
	}
	return sameContent(file, content)
}

func sameContent(left, right io.Reader) (bool, error) {
	leftBuffer, rightBuffer := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		leftN, leftErr := io.ReadFull(left, leftBuffer)
		rightN, rightErr := io.ReadFull(right, rightBuffer)
		if !bytes.Equal(leftBuffer[:leftN], rightBuffer[:rightN]) {
			return false, nil
		}
		eof := errors.Is(leftErr, io.EOF) || errors.Is(leftErr, io.ErrUnexpectedEOF)
		switch {
		case eof:
			return errors.Is(rightErr, leftErr), nil
		case leftErr != nil || rightErr != nil:
			return false, errors.Join(leftErr, rightErr)
		}
	}
}

// removeTemporaryFiles removes incomplete files left by killed installers.
func removeTemporaryFiles(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, temporaryPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := removeIfExists(path); err != nil {
			return err
		}
	}
	return nil
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
