package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestComponents(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "scripts/components")
}

const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`

var _ = Describe("The license of a module", func() {
	readLicenses := func(files map[string]string) (*component, error) {
		GinkgoHelper()
		dir := GinkgoT().TempDir()
		for name, text := range files {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
		}
		c := &component{}
		return c, c.readLicenses(dir)
	}
	licenses := func(files map[string]string) []string {
		GinkgoHelper()
		c, err := readLicenses(files)
		Expect(err).NotTo(HaveOccurred())
		return c.licenses
	}

	It("is found in files with different names, next to a notice", func() {
		for _, name := range []string{"LICENSE", "License.txt", "COPYING"} {
			Expect(licenses(map[string]string{name: mit, "NOTICE": "Copyright of the authors", "README.md": "no license"})).To(Equal([]string{"MIT"}))
		}
	})

	It("is required", func() {
		_, err := readLicenses(map[string]string{"README.md": mit})
		Expect(err).To(MatchError(ContainSubstring("no license found")))
	})

	It("must be allowed", func() {
		_, err := readLicenses(map[string]string{"LICENSE": mit, "COPYING": "SPDX-License-Identifier: GPL-3.0-only\n\nThis program is free software: you can redistribute it and/or modify " +
			"it under the terms of the GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."})
		Expect(err).To(MatchError(And(ContainSubstring("in COPYING is not allowed"), ContainSubstring("allowed licenses: "))))
	})

	It("is ignored if it is for documents, which are not part of a program", func() {
		Expect(licenses(map[string]string{"LICENSE": mit, "LICENSE.docs": "Attribution-ShareAlike 4.0 International"})).To(Equal([]string{"MIT"}))
	})

	It("is in the NOTICE file once for all components that have it", func() {
		notice := noticeText(map[string]component{"a@v1": {legalTexts: []string{"one"}}, "b@v2": {legalTexts: []string{"two", "one"}}})
		Expect(notice).To(ContainSubstring("Its programs contain the modules listed here"))
		Expect(notice).To(ContainSubstring("a@v1\nb@v2\n\none\n"))
		Expect(notice).To(ContainSubstring("\nb@v2\n\ntwo\n"))
	})
})
