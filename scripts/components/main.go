// Command components lists what programs and a BOSH release are made of: a CycloneDX SBOM for each, and a NOTICE with the licenses
// of all programs. It fails for a license that is not in the list of those that the project takes.
//
//	go run ./scripts/components [-sboms FOLDER] [-version VERSION] [-notice FILE] [-release TARBALL] [PROGRAM...]
//
// The same programs and the same release give the same files.
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
	flag.StringVar(&o.sbomDir, "sboms", "", "folder for an SBOM of each program, PROGRAM.cdx.json, and of the release, TARBALL.cdx.json")
	flag.StringVar(&o.version, "version", "", "version of the programs in their SBOMs; by default the one that they record")
	flag.StringVar(&o.noticePath, "notice", "", "file for the licenses of all that the programs are made of")
	flag.StringVar(&o.release, "release", "", "tarball of a BOSH release")
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
		return errors.New("missing argument: components [-sboms FOLDER] [-notice FILE] [-release TARBALL] [PROGRAM...]")
	}
	all := map[string]component{}
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
		for _, each := range components {
			all[each.path+"@"+each.version] = each
		}
		if err := o.writeSBOM(programSubject(path, info), components); err != nil {
			return err
		}
	}
	if o.release != "" {
		release, carried, err := releaseComponents(o.release)
		if err != nil {
			return err
		}
		if err := o.writeSBOM(release, carried); err != nil {
			return err
		}
	}
	if o.noticePath == "" {
		return nil
	}
	return os.WriteFile(o.noticePath, []byte(noticeOf(all)), 0o644) //nolint:gosec // it is for all to read
}

func (o options) writeSBOM(target subject, components []component) error {
	if o.sbomDir == "" {
		return nil
	}
	return writeSBOM(filepath.Join(o.sbomDir, filepath.Base(target.path)+".cdx.json"), target, components)
}

// noticeOf is the text with all licenses, those that say the same once.
func noticeOf(all map[string]component) string {
	users := map[string][]string{} // of each text
	for name, each := range all {
		for _, text := range each.texts {
			users[text] = append(users[text], name)
		}
	}
	parts := make([]string, 0, len(users))
	for text, names := range users {
		slices.Sort(names)
		parts = append(parts, strings.Join(names, "\n")+"\n\n"+strings.TrimSpace(text)+"\n")
	}
	slices.Sort(parts)
	return "BOSH on Kubernetes (bosh-kubernetes-cpi), Apache License 2.0\n\n" +
		"Its programs contain what is listed here, under the licenses that follow each list; stdlib is Go's standard library.\n\n" +
		strings.Join(parts, "\n"+strings.Repeat("-", 80)+"\n\n")
}
