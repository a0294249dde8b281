package stemcell

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = DescribeTable("The registry of an image is requested with", func(scheme string, registry Registry) {
	reference, err := Store{Options: Options{Registry: registry}}.parse("registry.lan:5000/stemcells:1")
	Expect(err).NotTo(HaveOccurred())
	Expect(reference.Context().Scheme()).To(Equal(scheme))
},
	Entry("TLS by default", "https", Registry{Repository: "registry.lan:5000/bosh"}),
	Entry("plain HTTP if it is the configured registry", "http", Registry{Repository: "registry.lan:5000/bosh", Insecure: true}),
	Entry("plain HTTP if nodes pull from it", "http", Registry{Repository: "push.lan/bosh", PullRepository: "registry.lan:5000/bosh", Insecure: true}),
	Entry("plain HTTP if none is configured", "http", Registry{Insecure: true}),
	Entry("TLS if another registry is configured", "https", Registry{Repository: "other.lan/bosh", Insecure: true}),
)
