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
	RunSpecs(t, "CSI test driver: services")
}

func haveCode(code codes.Code) OmegaMatcher {
	return WithTransform(func(err error) string { return status.Code(err).String() }, Equal(code.String()))
}

var _ = DescribeTable("chooseSize", func(required, limit, minimum, want int64, code codes.Code) {
	got, err := chooseSize(&csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, minimum)
	Expect(err).To(haveCode(code))
	if err == nil {
		Expect(got).To(Equal(want))
	}
},
	Entry("returns the default without a request", int64(0), int64(0), int64(0), int64(defaultSize), codes.OK),
	Entry("returns the snapshot's size without a request", int64(0), int64(0), int64(5*mebibyte), int64(5*mebibyte), codes.OK),
	Entry("rounds up to whole MiB", int64(mebibyte+1), int64(0), int64(0), int64(2*mebibyte), codes.OK),
	Entry("rounds to whole sectors if the limit excludes whole MiB", int64(mebibyte+512), int64(mebibyte+1000), int64(0), int64(mebibyte+512), codes.OK),
	Entry("respects a limit below the default", int64(0), int64(3*mebibyte), int64(0), int64(3*mebibyte), codes.OK),
	Entry("fails for a limit below the snapshot's size", int64(0), int64(mebibyte), int64(2*mebibyte), int64(0), codes.OutOfRange),
	Entry("fails for a range without a whole sector", int64(mebibyte+1), int64(mebibyte+2), int64(0), int64(0), codes.OutOfRange),
	Entry("fails above the maximum size", int64(maxSize+1), int64(0), int64(0), int64(0), codes.OutOfRange),
	Entry("fails for the largest number", int64(math.MaxInt64), int64(0), int64(0), int64(0), codes.OutOfRange),
	Entry("fails for a limit below the required size", int64(2), int64(1), int64(0), int64(0), codes.InvalidArgument),
	Entry("fails for a negative size", int64(-1), int64(0), int64(0), int64(0), codes.InvalidArgument),
)

var _ = DescribeTable("checkCapability", func(capability *csi.VolumeCapability, code codes.Code) {
	Expect(checkCapability(capability)).To(haveCode(code))
},
	Entry("rejects a missing capability", nil, codes.InvalidArgument),
	Entry("rejects a missing access type", &csi.VolumeCapability{AccessMode: accessMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}, codes.InvalidArgument),
	Entry("accepts block volumes", block(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), codes.OK),
	Entry("rejects multiple nodes", block(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), codes.InvalidArgument),
	Entry("accepts xfs", mount("xfs"), codes.OK),
	Entry("rejects an unknown filesystem", mount("ntfs"), codes.InvalidArgument),
)

var _ = DescribeTable("checkMutableParameters", func(name, value string, code codes.Code) {
	Expect(checkMutableParameters(map[string]string{name: value})).To(haveCode(code))
},
	Entry("accepts a number of IOPS", IOPSParameter, "3000", codes.OK),
	Entry("rejects a number out of range", IOPSParameter, "0", codes.InvalidArgument),
	Entry("rejects a value that is not a number", IOPSParameter, "many", codes.InvalidArgument),
	Entry("rejects an unknown parameter", "throughput", "125", codes.InvalidArgument),
)

func accessMode(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability_AccessMode {
	return &csi.VolumeCapability_AccessMode{Mode: mode}
}

func block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessMode: accessMode(mode), AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
}

func mount(filesystem string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: accessMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: filesystem}},
	}
}

var _ = Describe("locks", func() {
	It("serialize the callers for a key", func() {
		var inside, maxInside atomic.Int32
		l := newLocks()
		var workers sync.WaitGroup
		for range 50 {
			workers.Go(func() {
				defer GinkgoRecover()
				unlock, err := l.lock(context.Background(), "volume")
				Expect(err).NotTo(HaveOccurred())
				defer unlock()
				maxInside.Store(max(maxInside.Load(), inside.Add(1)))
				inside.Add(-1)
			})
		}
		workers.Wait()
		Expect(maxInside.Load()).To(Equal(int32(1)))
		Expect(l.keys).To(BeEmpty())
	})

	It("return ABORTED after the deadline, but not for other keys", func() {
		l := newLocks()
		unlock, err := l.lock(context.Background(), "volume")
		Expect(err).NotTo(HaveOccurred())
		defer unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err = l.lock(ctx, "volume")
		Expect(err).To(haveCode(codes.Aborted))
		unlockOther, err := l.lock(ctx, "another volume")
		Expect(err).NotTo(HaveOccurred())
		unlockOther()
	})
})
