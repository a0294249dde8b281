// Package manifests tests the templates of the release's job, rendered by ERB.
package manifests

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "manifests")
}

const (
	fixtures = "testdata"
	job      = "../../jobs/kubernetes_cpi"
)
