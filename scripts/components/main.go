// Command components lists the Go modules in programs and in a BOSH release. It writes a CycloneDX SBOM for each of them, and a NOTICE file
// with the licenses of all programs. It fails if a license is not allowed.
//
//	go run ./scripts/components [-sboms DIR] [-version VERSION] [-notice FILE] [-release TARBALL] [PROGRAM...]
//
// The output is reproducible: it depends only on the programs and the release.
package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.sbomDir, "sboms", "", "`directory` for the SBOMs of programs (PROGRAM.cdx.json) and the release (TARBALL.cdx.json)")
	flag.StringVar(&o.version, "version", "", "`version` of the programs in their SBOMs (default: the version recorded in the program)")
	flag.StringVar(&o.noticePath, "notice", "", "`file` for the licenses of all modules in the programs")
	flag.StringVar(&o.release, "release", "", "`tarball` of a BOSH release")
	flag.Parse()
	o.programs = flag.Args()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "components:", err)
		os.Exit(1)
	}
}

type options struct {
	sbomDir, version, noticePath, release string
	programs                              []string
}

func (o options) run() error {
	if len(o.programs) == 0 && o.release == "" {
		return errors.New("a program or -release is required; see -help")
	}
	used := map[string]component{} // by PATH@VERSION
	for _, path := range o.programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		info.Main.Version = cmp.Or(o.version, info.Main.Version)
		components, err := componentsOf(info)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, component := range components {
			used[component.path+"@"+component.version] = component
		}
		if err := o.writeSBOM(programSubject(path, info), components); err != nil {
			return err
		}
	}
	if o.release != "" {
		release, components, err := releaseComponents(o.release)
		if err != nil {
			return err
		}
		if err := o.writeSBOM(release, components); err != nil {
			return err
		}
	}
	if o.noticePath == "" {
		return nil
	}
	return os.WriteFile(o.noticePath, []byte(noticeText(used)), 0o644) //nolint:gosec // a public file
}

func (o options) writeSBOM(target subject, components []component) error {
	if o.sbomDir == "" {
		return nil
	}
	return writeSBOM(filepath.Join(o.sbomDir, filepath.Base(target.path)+".cdx.json"), target, components)
}

// noticeText returns the text of the NOTICE file: each license text once, below the components that have it. components maps names to
// components.
func noticeText(components map[string]component) string {
	namesByText := map[string][]string{}
	for name, component := range components {
		for _, text := range component.legalTexts {
			namesByText[text] = append(namesByText[text], name)
		}
	}
	parts := make([]string, 0, len(namesByText))
	for text, names := range namesByText {
		slices.Sort(names)
		parts = append(parts, strings.Join(names, "\n")+"\n\n"+strings.TrimSpace(text)+"\n")
	}
	slices.Sort(parts)
	return "BOSH on Kubernetes (bosh-kubernetes-cpi), Apache License 2.0\n\n" +
		"Its programs contain the modules listed here, under the license below each list; stdlib is Go's standard library.\n\n" +
		strings.Join(parts, "\n"+strings.Repeat("-", 80)+"\n\n")
}
