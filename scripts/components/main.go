// Command components tells what programs are made of: a CycloneDX SBOM for each, and a NOTICE with the licenses of all. It fails
// for a license that is not in the list of those that the project takes.
//
//	go run ./scripts/components [-sboms FOLDER] [-version VERSION] [-notice FILE] PROGRAM...
//
// The same programs give the same files.
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
	sboms := flag.String("sboms", "", "folder for an SBOM of each program, PROGRAM.cdx.json")
	version := flag.String("version", "", "of the programs themselves, for their SBOMs; what they say of it by default")
	notice := flag.String("notice", "", "file for the licenses of all that the programs are made of")
	flag.Parse()
	if err := run(*sboms, *version, *notice, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "components:", err)
		os.Exit(1)
	}
}

func run(sboms, version, notice string, programs []string) error {
	if len(programs) == 0 {
		return errors.New("no program is named: components [-sboms FOLDER] [-notice FILE] PROGRAM")
	}
	all := map[string]component{}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		info.Main.Version = cmp.Or(version, info.Main.Version)
		used, err := componentsOf(info)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, each := range used {
			all[each.path+"@"+each.version] = each
		}
		if sboms != "" {
			if err := writeSBOM(filepath.Join(sboms, filepath.Base(path)+".cdx.json"), path, info, used); err != nil {
				return err
			}
		}
	}
	if notice == "" {
		return nil
	}
	return os.WriteFile(notice, []byte(noticeOf(all)), 0o644) //nolint:gosec // it is for all to read
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
