package disk

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/manifest"
)

func TestDisk(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "disks")
}

var _ = Describe("The name of a dynamic disk", func() {
	// buildPVC returns the PVC for cloud_properties as a director sends them for a dynamic disk.
	buildPVC := func(name string) manifest.DiskPVC {
		raw, err := json.Marshal(map[string]any{"storage_class": "fast", "name": name})
		Expect(err).NotTo(HaveOccurred())
		properties, err := parseProperties(raw)
		Expect(err).NotTo(HaveOccurred())
		return properties.buildDisk("disk-1", "director", 64).PVC()
	}

	It("is a label and an annotation of the PVC", func() {
		pvc := buildPVC("logs-2026")
		Expect(pvc.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/dynamic-disk", "logs-2026"))
		Expect(pvc.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/dynamic-disk", "logs-2026"))
	})

	It("is only an annotation if it is not a valid label value", func() {
		name := "disk for " + strings.Repeat("a", 63)
		pvc := buildPVC(name)
		Expect(pvc.Labels).NotTo(HaveKey("bosh.cloudfoundry.org/dynamic-disk"))
		Expect(pvc.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/dynamic-disk", name))
	})
})
