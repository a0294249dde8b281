package cpi

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi")
}
