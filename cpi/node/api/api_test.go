package api_test

import (
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node/api"
)

var _ = Describe("A result", func() {
	It("has the code closest to the cause, and the users of the disk", func() {
		users := []api.User{{Process: 7, Name: "tail", Path: "/var/vcap/store/log"}}
		cause := api.Errorf("disk-in-use", "in use: %w", errors.ErrUnsupported).With(users)
		Expect(cause).To(MatchError(errors.ErrUnsupported))
		result := api.ResultOf(fmt.Errorf("cannot check: %w", cause), "cluster-error")
		Expect(result).To(Equal(api.Result{Version: api.Version, Code: "disk-in-use", Message: "cannot check: in use: unsupported operation", Users: users}))
		Expect(result.String()).To(Equal("cannot check: in use: unsupported operation [disk-in-use]"))
		Expect(users[0].String()).To(Equal("process 7 (tail) uses /var/vcap/store/log"))
	})

	It("has a code of its command if the error has none", func() {
		Expect(api.ResultOf(errors.New("no"), "cluster-error")).To(HaveField("Code", "cluster-error"))
	})

	It("is the same after it was a termination message", func() {
		result := api.Result{Version: api.Version, Code: "disk-in-use", Message: "a\n\"b\"", Users: []api.User{{Process: 1, Mounted: true}}}
		encoded, err := result.Encode()
		Expect(err).NotTo(HaveOccurred())
		decoded, ok := api.ParseResult(string(encoded))
		Expect(ok).To(BeTrue())
		Expect(decoded).To(Equal(result))
	})

	DescribeTable("fits in a termination message, of which Kubernetes keeps 4,096 bytes:", func(message string, users int) {
		result := api.Result{Version: api.Version, Code: "disk-in-use", Message: message, Users: make([]api.User, users)}
		encoded, err := result.Encode()
		Expect(err).NotTo(HaveOccurred())
		Expect(len(encoded)).To(And(BeNumerically("<=", 4096), BeNumerically(">", 3000)))
		decoded, ok := api.ParseResult(string(encoded))
		Expect(ok).To(BeTrue())
		Expect(strings.TrimSuffix(decoded.Message, "…")).To(HavePrefix(message[:min(300, len(message))]))
	},
		Entry("many users", "in use", 1000),
		Entry("a long message", strings.Repeat("x", 5000), 3),
		Entry("a message that JSON makes longer", strings.Repeat("\n", 5000), 0),
		Entry("a message with longer characters", strings.Repeat("é", 5000), 0),
	)

	DescribeTable("is not in a message:", func(message string) {
		_, ok := api.ParseResult(message)
		Expect(ok).To(BeFalse())
	},
		Entry("no JSON", "exec: no such file"),
		Entry("JSON without a code", `{"version": 1}`),
		Entry("JSON without a version", `{"code": "disk-in-use"}`),
		Entry("nothing", ""),
	)
})
