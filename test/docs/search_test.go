package docs

import (
	"path/filepath"
	"regexp"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The terms are what operators type into a search box. A search finds a page by a heading.
var _ = DescribeTable("A search finds", func(term string, expected ...string) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/*/*.md"))
	Expect(err).NotTo(HaveOccurred())
	pattern := regexp.MustCompile("(?i)" + term)
	var found []string
	for _, file := range pages {
		if slices.ContainsFunc(parsePage(relativePath(file)).headings, pattern.MatchString) {
			found = append(found, relativePath(file))
		}
	}
	for _, page := range expected {
		Expect(found).To(ContainElement("docs/" + page))
	}
},
	Entry(nil, "orphaned", "reference/orphaned-resources.md"),
	Entry(nil, "garbage collection", "reference/orphaned-resources.md"),
	Entry(nil, "expired token", "guides/troubleshooting.md"),
	Entry(nil, "rotate credentials", "guides/credentials.md"),
	Entry(nil, "uninstall", "guides/operations.md", "guides/install.md"),
	Entry(nil, "static ip is not assigned", "guides/networks.md", "guides/troubleshooting.md"),
	Entry(nil, "reserved range", "guides/networks.md"),
	Entry(nil, "drain a node", "guides/operations.md"),
	Entry(nil, "lost node", "guides/operations.md"),
	Entry(nil, "upgrade the cpi", "guides/operations.md"),
	Entry(nil, "backup", "guides/operations.md"),
	Entry(nil, "quota", "guides/operations.md"),
	Entry(nil, "snapshot", "guides/disks.md", "reference/errors.md"),
	Entry(nil, "snapshot-unsupported", "reference/errors.md"),
	Entry(nil, "disk-in-use", "reference/errors.md"),
	Entry(nil, "resize", "guides/disks.md"),
	Entry(nil, "publish ports", "guides/services.md"),
	Entry(nil, "availability zone", "guides/cloud-config.md"),
	Entry(nil, "light stemcell", "guides/stemcells.md"),
	Entry(nil, "prefetch", "guides/stemcells.md"),
	Entry(nil, "openshift", "guides/clusters.md"),
	Entry(nil, "several clusters", "reference/configuration.md"),
	Entry(nil, "preflight", "reference/preflight.md"),
	Entry(nil, "admission policy", "explanation/security.md"),
	Entry(nil, "selinux", "explanation/security.md"),
	Entry(nil, "migrate", "guides/migration.md"),
	Entry(nil, "air gap", "guides/stemcells.md"),
	Entry(nil, "registry mirror", "guides/stemcells.md"),
	Entry(nil, "github actions", "guides/ci.md"),
	Entry(nil, "rke2", "guides/clusters.md"),
	Entry(nil, "autopilot", "guides/clusters.md"),
	Entry(nil, "macos", "guides/clusters.md"),
	Entry(nil, "apple silicon", "guides/clusters.md"),
	Entry(nil, "docker cpi", "guides/ci.md"),
	Entry(nil, "http proxy", "guides/install.md", "reference/configuration.md"),
	Entry(nil, "several directors", "guides/install.md"),
	Entry(nil, "sizing", "guides/operations.md"),
	Entry(nil, "gpu", "guides/cloud-config.md"),
	Entry(nil, "cluster administrator", "explanation/security.md"),
)
