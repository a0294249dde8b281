package kube

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestKube(t *testing.T) {
	RegisterFailHandler(Fail)
	suite = t
	RunSpecs(t, "kube")
}

var suite *testing.T // for [memoryapi.InVirtualTime]
