// Command tar creates reproducible archives, with sorted names, a constant time, no owners, and no file modes except the executable bit.
// The same files result in the same archive, on Linux and macOS.
//
//	tar [--no-mac-metadata] [--exclude=PATTERN]... -czf ARCHIVE -C DIR NAME...    (without compression: -cf)
//
// The BOSH CLI calls the first tar in $PATH with these arguments. If that is this program, BOSH releases are reproducible. A PATTERN with a
// slash, such as ./doc, matches a path in DIR. A PATTERN without a slash matches the last part of a name. For all other arguments, the
// program executes the next tar in $PATH.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// packRequest is a parsed command line.
type packRequest struct {
	archive, dir          string
	names                 []string // paths relative to dir, as in the arguments
	excluded              []string // patterns
	compressed, supported bool     // supported means that this program can create the archive itself
}

func main() {
	request := parse(os.Args[1:])
	var err error
	if request.supported {
		err = request.pack()
	} else {
		err = execNextTar()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tar:", err)
		os.Exit(2)
	}
}

// parse parses the arguments. The result is not supported if the arguments have another form than above.
func parse(arguments []string) packRequest {
	request := packRequest{compressed: true}
	for len(arguments) > 0 {
		pattern, isPattern := strings.CutPrefix(arguments[0], "--exclude=")
		switch {
		case isPattern:
			request.excluded = append(request.excluded, pattern)
		case arguments[0] != "--no-mac-metadata": // the archive never contains such metadata
			return request.parsePacking(arguments)
		}
		arguments = arguments[1:]
	}
	return request
}

// parsePacking parses the arguments after the long options.
func (r packRequest) parsePacking(arguments []string) packRequest {
	if len(arguments) < 5 || arguments[0] != "-czf" && arguments[0] != "-cf" || arguments[2] != "-C" {
		return r
	}
	r.supported, r.compressed = true, arguments[0] == "-czf"
	r.archive, r.dir, r.names = arguments[1], arguments[3], arguments[4:]
	for _, name := range r.names {
		if strings.HasPrefix(name, "-") || path.IsAbs(name) {
			r.supported = false
		}
	}
	return r
}

// excludes reports whether the path, which is relative to r.dir, is excluded.
func (r packRequest) excludes(name string) bool {
	for _, pattern := range r.excluded {
		compared := path.Base(name)
		if strings.Contains(pattern, "/") {
			compared, pattern = path.Clean(name), path.Clean(pattern)
		}
		if matches, err := path.Match(pattern, compared); err == nil && matches {
			return true
		}
	}
	return false
}

// execNextTar replaces this program with the next tar in $PATH.
func execNextTar() error {
	next, err := nextTar(os.Getenv("PATH"))
	if err != nil {
		return err
	}
	return syscall.Exec(next, append([]string{"tar"}, os.Args[1:]...), os.Environ()) //nolint:gosec // the arguments are the user's
}

// nextTar returns the first tar in searchPath, a value of $PATH, that is not this program.
func nextTar(searchPath string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	selfInfo, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	for _, dir := range filepath.SplitList(searchPath) {
		candidate, err := exec.LookPath(filepath.Join(dir, "tar"))
		if err != nil {
			continue
		}
		if info, err := os.Stat(candidate); err == nil && !os.SameFile(selfInfo, info) {
			return candidate, nil
		}
	}
	return "", errors.New("these arguments require another tar, but $PATH contains none")
}
