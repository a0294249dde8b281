package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

// modTime is the modification time of all entries. It is not in 1970, which some versions of tar call implausible.
var modTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack writes the archive, and removes an incomplete one if it fails.
func (o packRequest) pack() (err error) {
	file, err := os.Create(o.archive)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(o.archive)
		}
	}()
	if !o.compressed {
		err = o.write(file)
	} else {
		compressor := gzip.NewWriter(file)
		if err = o.write(compressor); err == nil {
			err = compressor.Close()
		}
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// write writes the files as an uncompressed tar archive.
func (o packRequest) write(to io.Writer) error {
	archive := tar.NewWriter(to)
	for _, name := range o.names {
		// WalkDir sorts the entries of a folder by name.
		err := filepath.WalkDir(filepath.Join(o.folder, filepath.FromSlash(name)), func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			below, err := filepath.Rel(o.folder, file)
			if err != nil {
				return err
			}
			below = filepath.ToSlash(below)
			switch {
			case !o.excludes(below):
				return add(archive, file, nameOf(name, below), entry)
			case entry.IsDir():
				return fs.SkipDir
			default:
				return nil
			}
		})
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

// nameOf returns a file's name in the archive, like tar: with ./ if the given name has it.
func nameOf(given, below string) string {
	switch {
	case below == ".":
		return "./"
	case given == "." || strings.HasPrefix(given, "./"):
		return "./" + below
	default:
		return below
	}
}

// add writes one file, folder or symbolic link. It fails for anything else.
func add(archive *tar.Writer, file, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, ModTime: modTime, Mode: 0o644, Format: tar.FormatGNU}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, path.Clean(name)+"/", 0o755
		if name == "./" {
			header.Name = name
		} else if strings.HasPrefix(name, "./") {
			header.Name = "./" + header.Name
		}
		return archive.WriteHeader(header)
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
		if header.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
		return archive.WriteHeader(header)
	case !info.Mode().IsRegular():
		return fmt.Errorf("cannot pack %s: not a regular file, folder or symbolic link", file)
	}
	if info.Mode()&0o111 != 0 {
		header.Mode = 0o755
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(archive, content)
	return err
}
