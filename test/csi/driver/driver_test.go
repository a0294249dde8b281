package driver

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestDriver(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Services of the CSI driver for tests")
}

func haveCode(code codes.Code) OmegaMatcher {
	return WithTransform(func(err error) string { return status.Code(err).String() }, Equal(code.String()))
}

var _ = DescribeTable("the size of a volume", func(required, limit, least, want int64, code codes.Code) {
	got, err := chooseSize(&csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, least)
	Expect(err).To(haveCode(code))
	if err == nil {
		Expect(got).To(Equal(want))
	}
},
	Entry("nothing asked", int64(0), int64(0), int64(0), int64(defaultSize), codes.OK),
	Entry("nothing asked, of a snapshot", int64(0), int64(0), int64(5*mebibyte), int64(5*mebibyte), codes.OK),
	Entry("whole MiB", int64(mebibyte+1), int64(0), int64(0), int64(2*mebibyte), codes.OK),
	Entry("whole sectors below the limit", int64(mebibyte+512), int64(mebibyte+1000), int64(0), int64(mebibyte+512), codes.OK),
	Entry("only a limit", int64(0), int64(3*mebibyte), int64(0), int64(3*mebibyte), codes.OK),
	Entry("a limit below the snapshot's size", int64(0), int64(mebibyte), int64(2*mebibyte), int64(0), codes.OutOfRange),
	Entry("no sector within the range", int64(mebibyte+1), int64(mebibyte+2), int64(0), int64(0), codes.OutOfRange),
	Entry("too large", int64(maximalSize+1), int64(0), int64(0), int64(0), codes.OutOfRange),
	Entry("larger than there are numbers", int64(math.MaxInt64), int64(0), int64(0), int64(0), codes.OutOfRange),
	Entry("a range that is none", int64(2), int64(1), int64(0), int64(0), codes.InvalidArgument),
	Entry("negative", int64(-1), int64(0), int64(0), int64(0), codes.InvalidArgument),
)

var _ = DescribeTable("capabilities", func(capability *csi.VolumeCapability, code codes.Code) {
	Expect(checkCapability(capability)).To(haveCode(code))
},
	Entry("none", nil, codes.InvalidArgument),
	Entry("no access type", &csi.VolumeCapability{AccessMode: mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}, codes.InvalidArgument),
	Entry("block", block(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), codes.OK),
	Entry("several nodes", block(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), codes.InvalidArgument),
	Entry("xfs", mount("xfs"), codes.OK),
	Entry("an unknown filesystem", mount("ntfs"), codes.InvalidArgument),
)

func mode(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability_AccessMode {
	return &csi.VolumeCapability_AccessMode{Mode: mode}
}

func block(of csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessMode: mode(of), AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
}

func mount(filesystem string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: filesystem}},
	}
}

var _ = Describe("pages", func() {
	same := func(each string) string { return each }

	It("follow each other to the end", func() {
		some, next, err := paginate([]string{"a", "b", "c"}, same, "", 2)
		Expect(err).NotTo(HaveOccurred())
		Expect(some).To(Equal([]string{"a", "b"}))
		some, next, err = paginate([]string{"a", "b", "c"}, same, next, 2)
		Expect(err).NotTo(HaveOccurred())
		Expect(some).To(Equal([]string{"c"}))
		Expect(next).To(BeEmpty())
	})

	It("refuse a token that names nothing", func() {
		_, _, err := paginate([]string{"a"}, same, "z", 0)
		Expect(err).To(haveCode(codes.Aborted))
	})
})

var _ = Describe("locks", func() {
	It("let one at a time in for each key", func() {
		var inside, most atomic.Int32
		l := newLocks()
		var workers sync.WaitGroup
		for range 50 {
			workers.Go(func() {
				defer GinkgoRecover()
				unlock, err := l.lock(context.Background(), "volume")
				Expect(err).NotTo(HaveOccurred())
				defer unlock()
				most.Store(max(most.Load(), inside.Add(1)))
				inside.Add(-1)
			})
		}
		workers.Wait()
		Expect(most.Load()).To(Equal(int32(1)))
		Expect(l.keys).To(BeEmpty())
	})

	It("answer ABORTED when the call's time is over", func() {
		l := newLocks()
		unlock, err := l.lock(context.Background(), "volume")
		Expect(err).NotTo(HaveOccurred())
		defer unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err = l.lock(ctx, "volume")
		Expect(err).To(haveCode(codes.Aborted))
		other, err := l.lock(ctx, "another volume")
		Expect(err).NotTo(HaveOccurred())
		other()
	})
})
