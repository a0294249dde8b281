package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/licensecheck"
	mod "golang.org/x/mod/module"
)

// allowedLicenses are the licenses that dependencies may have.
var allowedLicenses = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "CC0-1.0"}

// component is a Go module or Go's standard library that is part of a program.
type component struct {
	path, version, sum string
	licenses           []string // SPDX identifiers
	legalTexts         []string // contents of license and notice files
}

// componentsOf returns the modules of a program, and Go's standard library. It reads their licenses in Go's module cache.
func componentsOf(info *buildinfo.BuildInfo) ([]component, error) {
	std, err := standardLibrary(info.GoVersion)
	if err != nil {
		return nil, err
	}
	components := []component{std}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		dependency := component{path: module.Path, version: module.Version, sum: module.Sum}
		if err := dependency.readModule(); err != nil {
			return nil, err
		}
		components = append(components, dependency)
	}
	return components, nil
}

// standardLibrary returns the component of Go's standard library, with the path and version that the Go vulnerability database uses.
func standardLibrary(goVersion string) (component, error) {
	std := component{path: "stdlib", version: strings.TrimPrefix(goVersion, "go")}
	root, err := goEnv("GOROOT")
	if err != nil {
		return component{}, err
	}
	err = std.readLicenses(root)
	return std, err
}

// readModule reads the licenses of the module in Go's module cache.
func (c *component) readModule() error {
	dir, err := moduleDir(*c)
	if err == nil {
		err = c.readLicenses(dir)
	}
	if err != nil {
		return fmt.Errorf("%s@%s: %w", c.path, c.version, err)
	}
	return nil
}

// moduleDir returns the directory of the module in Go's module cache.
func moduleDir(module component) (string, error) {
	cache, err := moduleCache()
	if err != nil {
		return "", err
	}
	path, err := mod.EscapePath(module.path)
	if err != nil {
		return "", err
	}
	version, err := mod.EscapeVersion(module.version)
	return filepath.Join(cache, path+"@"+version), err
}

// moduleCache returns the directory of Go's module cache.
var moduleCache = sync.OnceValues(func() (string, error) { return goEnv("GOMODCACHE") })

func goEnv(variable string) (string, error) {
	command := exec.CommandContext(context.Background(), "go", "env", variable)
	command.Stderr = os.Stderr
	out, err := command.Output()
	return strings.TrimSpace(string(out)), err
}

var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([-.].*)?$`)
	docsLicense = regexp.MustCompile(`(?i)[-.]docs$`) // a license of documents, which are not part of a program
	noticeFile  = regexp.MustCompile(`(?i)^notice([-.].*)?$`)
)

// readLicenses reads the license and notice files in the module's directory. It fails for a module without a license, and for a license
// that is not in allowedLicenses.
func (c *component) readLicenses(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		isLicense := licenseFile.MatchString(entry.Name())
		if entry.IsDir() || docsLicense.MatchString(entry.Name()) || !isLicense && !noticeFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		c.legalTexts = append(c.legalTexts, string(text))
		if isLicense {
			if err := c.addLicenses(entry.Name(), text); err != nil {
				return err
			}
		}
	}
	if len(c.licenses) == 0 {
		return fmt.Errorf("no license found in %s", dir)
	}
	slices.Sort(c.licenses)
	c.licenses = slices.Compact(c.licenses)
	return nil
}

// addLicenses adds the licenses in a file.
func (c *component) addLicenses(file string, text []byte) error {
	for _, match := range licensecheck.Scan(text).Match {
		if match.IsURL { // a mention of a license, not its text
			continue
		}
		if !slices.Contains(allowedLicenses, match.ID) {
			return fmt.Errorf("license %s in %s is not allowed; allowed licenses: %s", match.ID, file, strings.Join(allowedLicenses, ", "))
		}
		c.licenses = append(c.licenses, match.ID)
	}
	return nil
}
