// Command tar packs archives as tar does, with nothing in them of when, where and by whom: names in order, one time, no owners, no
// modes but whether a file can be run. The same files make the same archive, on Linux and on macOS.
//
//	tar [--no-mac-metadata] [--exclude=PATTERN]... -czf ARCHIVE -C FOLDER NAME...    -cf for one that is not compressed
//
// That is how the BOSH CLI packs, with the tar that it finds in $PATH: before the real one there, this makes releases the same, bit by
// bit. A PATTERN with a slash, as ./doc, is compared with a path below FOLDER, one without with the last part of a name. All other
// arguments are for the next tar in $PATH, which takes this one's place.
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

// packRequest is what is to be packed.
type packRequest struct {
	archive, folder       string
	names                 []string // as given; each is a path below folder
	excluded              []string // patterns
	compressed, supported bool     // known: it is an order that this program carries out
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

// parse reads arguments of the form above.
func parse(arguments []string) packRequest {
	o := packRequest{compressed: true}
	for len(arguments) > 0 {
		pattern, isPattern := strings.CutPrefix(arguments[0], "--exclude=")
		switch {
		case isPattern:
			o.excluded = append(o.excluded, pattern)
		case arguments[0] != "--no-mac-metadata": // there is none in the archive anyway
			return o.parsePacking(arguments)
		}
		arguments = arguments[1:]
	}
	return o
}

// parsePacking reads what follows the long options.
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

// excludes says whether the path below the folder is left out, and what is below it.
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
	return syscall.Exec(next, append([]string{"tar"}, os.Args[1:]...), os.Environ()) //nolint:gosec // it is what was asked for
}

// nextTar is the first tar in the folders that is not this program.
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
	return "", errors.New("there is no other tar in $PATH, which these arguments are for")
}
