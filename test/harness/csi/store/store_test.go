package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/csi/store"
)

func TestStore(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "CSI test driver: store")
}

var _ = Describe("Store", func() {
	var dir string
	var opened *store.Store

	BeforeEach(func() {
		dir = GinkgoT().TempDir()
		opened = openStore(dir)
	})

	It("returns the records that were written before a restart", func() {
		volume := store.Volume{ID: "volume-1", Name: "pvc-1", Capacity: 7, Node: "node-1", SourceSnapshot: "snapshot-1", Published: "node-1"}
		Expect(opened.PutVolume(volume)).To(Succeed())
		Expect(opened.PutSnapshot(store.Snapshot{ID: "snapshot-1", Name: "s", Source: "volume-1", Size: 7})).To(Succeed())
		Expect(opened.AddNode("node-1")).To(Succeed())

		reopened := openStore(dir)
		Expect(reopened.Volume("volume-1")).To(Equal(volume))
		Expect(reopened.Volumes()).To(ConsistOf(volume))
		Expect(reopened.Snapshots()).To(ConsistOf(HaveField("ID", "snapshot-1")))
		Expect(reopened.Nodes()).To(ConsistOf("node-1"))
	})

	DescribeTable("finds no record for", func(id string) {
		_, err := opened.Volume(id)
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(opened.HasNode(id)).To(BeFalse())
		Expect(opened.DeleteVolume(id)).To(Succeed())
		if id != "no-such" {
			Expect(opened.PutVolume(store.Volume{ID: id})).NotTo(Succeed())
		}
	},
		Entry("an unknown ID", "no-such"),
		Entry("an empty ID", ""),
		Entry("a path", "../volumes/volume-1"),
		Entry("a hidden file", ".new-1"),
		Entry("a name that is too long for a file", strings.Repeat("x", 200)),
	)

	It("deletes the record and the content, and does nothing the second time", func() {
		Expect(store.CreateImage(opened.VolumeImage("volume-1"), 1<<20)).To(Succeed())
		Expect(opened.PutVolume(store.Volume{ID: "volume-1"})).To(Succeed())
		Expect(opened.DeleteVolume("volume-1")).To(Succeed())
		Expect(opened.DeleteVolume("volume-1")).To(Succeed())
		Expect(filepath.Join(dir, "volumes")).To(beEmptyDirectory())
	})

	It("returns the images of volumes that are bound or attached to a node", func() {
		for _, volume := range []store.Volume{
			{ID: "bound", Node: "node-1"}, {ID: "attached", Published: "node-1"}, {ID: "elsewhere", Node: "node-2", Published: "node-2"}, {ID: "free"},
		} {
			Expect(opened.PutVolume(volume)).To(Succeed())
		}
		Expect(opened.ImagesOn("node-1")).To(ConsistOf(opened.VolumeImage("bound"), opened.VolumeImage("attached")))
		Expect(opened.ImagesOn("node-3")).To(BeEmpty())
	})

	It("removes only orphaned images and incomplete records", func() {
		Expect(opened.PutVolume(store.Volume{ID: "volume-1"})).To(Succeed())
		for _, path := range []string{opened.VolumeImage("volume-1"), opened.VolumeImage("volume-2"), opened.SnapshotImage("snapshot-1"), filepath.Join(dir, "volumes", ".new-77")} {
			Expect(os.WriteFile(path, []byte("content"), 0o600)).To(Succeed())
		}
		Expect(openStore(dir).RemoveOrphans()).To(Succeed())
		Expect(opened.VolumeImage("volume-1")).To(BeARegularFile())
		Expect(opened.Volumes()).To(HaveLen(1))
		Expect(os.ReadDir(filepath.Join(dir, "volumes"))).To(HaveLen(2))
		Expect(filepath.Join(dir, "snapshots")).To(beEmptyDirectory())
	})

	It("shows readers only complete records during concurrent writes", func() {
		long := strings.Repeat("n", 4096)
		Expect(opened.PutVolume(store.Volume{ID: "volume-1", Name: long})).To(Succeed())
		var workers sync.WaitGroup
		for writer := range 4 {
			workers.Go(func() {
				defer GinkgoRecover()
				for size := range 20 {
					Expect(opened.PutVolume(store.Volume{ID: "volume-1", Name: long, Capacity: int64(writer*100 + size)})).To(Succeed())
				}
			})
			workers.Go(func() {
				defer GinkgoRecover()
				for range 200 {
					Expect(opened.Volumes()).To(ConsistOf(HaveField("Name", long)))
				}
			})
		}
		workers.Wait()
	})
})

var _ = Describe("Image", func() {
	var dir string
	BeforeEach(func() { dir = GinkgoT().TempDir() })

	It("is sparse, grows, and never shrinks", func() {
		path := filepath.Join(dir, "a.img")
		Expect(store.CreateImage(path, 1<<30)).To(Succeed())
		Expect(store.GrowImage(path, 2<<30)).To(Succeed())
		Expect(store.GrowImage(path, 1<<20)).To(Succeed())
		Expect(size(path)).To(Equal(int64(2 << 30)))
		Expect(allocatedBytes(path)).To(BeZero())
	})

	It("is copied with its content and its holes", func() {
		source, target := filepath.Join(dir, "a.img"), filepath.Join(dir, "b.img")
		Expect(store.CreateImage(source, 1<<30)).To(Succeed())
		file, err := os.OpenFile(source, os.O_RDWR, 0)
		Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		for offset, content := range map[int64]string{0: "begin", 700 << 20: "middle", 1<<30 - 3: "end"} {
			_, err := file.WriteAt([]byte(content), offset)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(store.CopyImage(context.Background(), source, target)).To(Succeed())
		Expect(size(target)).To(Equal(int64(1 << 30)))
		Expect(allocatedBytes(target)).To(And(BeNumerically(">", 0), BeNumerically("<", 1<<20)))
		copied, err := os.Open(target)
		Expect(err).NotTo(HaveOccurred())
		defer copied.Close()
		for offset, content := range map[int64]string{0: "begin\x00", 700 << 20: "middle\x00", 1<<30 - 3: "end"} {
			read := make([]byte, len(content))
			_, err := copied.ReadAt(read, offset)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(read)).To(Equal(content))
		}
	})
})
