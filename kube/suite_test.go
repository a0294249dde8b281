package kube

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestKube(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	suite = t
	RunSpecs(t, "kube")
}

var suite *testing.T // for [memoryapi.InVirtualTime]
