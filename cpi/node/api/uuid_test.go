package api_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node/api"
)

var _ = Describe("The UUID of a disk", func() {
	const uuid = "6d2d1c5a-6f1e-4c3b-9a59-0c9f4b8f1f10"

	It("is the one in its CID", func() {
		Expect(api.DiskUUID("disk-" + uuid)).To(Equal(uuid))
	})

	It("is in lower case, as programs print it", func() {
		Expect(api.DiskUUID("disk-6D2D1C5A-6F1E-4C3B-9A59-0C9F4B8F1F10")).To(Equal(uuid))
	})

	DescribeTable("is derived from any other CID, and never changes", func(cid, expected string) {
		Expect(api.DiskUUID(cid)).To(Equal(expected))
	},
		Entry("without UUID", "disk-1", "0cbf7d06-73b1-5d55-b741-78fc3ed11572"),
		Entry("with a UUID and more", "disk-"+uuid+"-copy", "12f59365-1d39-5fad-b56f-bfe5c46240e8"),
		Entry("without prefix", uuid, "7bdb0c52-eb9d-5368-b02d-54a87c070297"),
	)
})
