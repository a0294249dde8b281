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

// modTime is the modification time of all entries. Some versions of tar warn about implausible times in 1970.
var modTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack writes the archive. If it fails, it removes the incomplete archive.
func (r packRequest) pack() (err error) {
	file, err := os.Create(r.archive)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(r.archive)
		}
	}()
	if !r.compressed {
		err = r.write(file)
	} else {
		compressor := gzip.NewWriter(file)
		if err = r.write(compressor); err == nil {
			err = compressor.Close()
		}
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// write writes the files as an uncompressed tar archive.
func (r packRequest) write(to io.Writer) error {
	archive := tar.NewWriter(to)
	for _, name := range r.names {
		// WalkDir sorts the entries of a directory by name.
		err := filepath.WalkDir(filepath.Join(r.dir, filepath.FromSlash(name)), func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(r.dir, file)
			if err != nil {
				return err
			}
			relative = filepath.ToSlash(relative)
			switch {
			case !r.excludes(relative):
				return add(archive, file, entryName(name, relative), entry)
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

// entryName returns the name of the file relative in the archive. Like tar, it keeps the ./ of argument.
func entryName(argument, relative string) string {
	switch {
	case relative == ".":
		return "./"
	case argument == "." || strings.HasPrefix(argument, "./"):
		return "./" + relative
	default:
		return relative
	}
}

// add writes a file, directory or symbolic link. It fails for anything else.
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
		return fmt.Errorf("cannot pack %s: not a regular file, directory or symbolic link", file)
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
