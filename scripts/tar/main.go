// Command tar creates reproducible archives: sorted names, one constant time, no owners, and no file modes except the executable
// bit. The same files give the same archive, on Linux and on macOS.
//
//	tar [--no-mac-metadata] [--exclude=PATTERN]... -czf ARCHIVE -C FOLDER NAME...    -cf without compression
//
// The BOSH CLI calls the first tar in $PATH with these arguments: with this one, BOSH releases are reproducible. A PATTERN with a
// slash, such as ./doc, matches a path below FOLDER; one without a slash matches the last part of a name. For all other arguments,
// the program executes the next tar in $PATH.
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
	archive, folder       string
	names                 []string // as given; paths below folder
	excluded              []string // patterns
	compressed, supported bool     // supported: this program can create the archive itself
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

// parse parses arguments of the form above. The result is not supported if they have another form.
func parse(arguments []string) packRequest {
	request := packRequest{compressed: true}
	for len(arguments) > 0 {
		pattern, isPattern := strings.CutPrefix(arguments[0], "--exclude=")
		switch {
		case isPattern:
			request.excluded = append(request.excluded, pattern)
		case arguments[0] != "--no-mac-metadata": // the archive never contains any
			return request.parsePacking(arguments)
		}
		arguments = arguments[1:]
	}
	return request
}

// parsePacking parses the arguments after the long options.
func (o packRequest) parsePacking(arguments []string) packRequest {
	if len(arguments) < 5 || arguments[0] != "-czf" && arguments[0] != "-cf" || arguments[2] != "-C" {
		return o
	}
	o.supported, o.compressed = true, arguments[0] == "-czf"
	o.archive, o.folder, o.names = arguments[1], arguments[3], arguments[4:]
	for _, name := range o.names {
		if strings.HasPrefix(name, "-") || path.IsAbs(name) {
			o.supported = false
		}
	}
	return o
}

// excludes reports whether the path, relative to the folder, is excluded together with everything below it.
func (o packRequest) excludes(name string) bool {
	for _, pattern := range o.excluded {
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
	return syscall.Exec(next, append([]string{"tar"}, os.Args[1:]...), os.Environ()) //nolint:gosec // the arguments are those of the user
}

// nextTar returns the first tar in the folders that is not this program.
func nextTar(folders string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	own, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	for _, folder := range filepath.SplitList(folders) {
		found, err := exec.LookPath(filepath.Join(folder, "tar"))
		if err != nil {
			continue
		}
		if info, err := os.Stat(found); err == nil && !os.SameFile(own, info) {
			return found, nil
		}
	}
	return "", errors.New("these arguments require another tar, but $PATH has none")
}
