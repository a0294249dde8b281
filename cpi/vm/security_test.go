package vm

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/call"
)

var _ = Describe("The profiles of a machine's security", func() {
	parse := func(security string) (Properties, error) {
		return parseProperties(json.RawMessage(`{"security": ` + security + `}`))
	}

	DescribeTable("are those of its container",
		func(security, context string) {
			properties, err := parse(security)
			Expect(err).NotTo(HaveOccurred())
			raw, err := json.Marshal(properties.Security.securityContext())
			Expect(err).NotTo(HaveOccurred())
			Expect(raw).To(MatchJSON(context))
		},
		Entry("the runtime's", `{"privileged": false, "seccomp_profile": {"type": "RuntimeDefault"}, "apparmor_profile": {"type": "RuntimeDefault"}}`,
			`{"privileged": false, "seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"}}`),
		Entry("the nodes' own", `{"privileged": false, "seccomp_profile": {"type": "Localhost", "localhostProfile": "bosh/vm.json"},
			"apparmor_profile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`,
			`{"privileged": false, "seccompProfile": {"type": "Localhost", "localhostProfile": "bosh/vm.json"},
			"appArmorProfile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`),
		Entry("none", `{"privileged": false, "seccomp_profile": {"type": "Unconfined"}, "apparmor_profile": {"type": "Unconfined"}}`,
			`{"privileged": false, "seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"}}`),
		Entry("of a privileged machine, AppArmor's on the nodes", `{"apparmor_profile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`,
			`{"privileged": true, "appArmorProfile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`),
		Entry("of a privileged machine, none", `{"seccomp_profile": {"type": "Unconfined"}}`, `{"privileged": true, "seccompProfile": {"type": "Unconfined"}}`),
	)

	DescribeTable("are refused by name when they cannot be, or would do nothing",
		func(security, message string) {
			_, err := parse(security)
			Expect(err).To(MatchError(ContainSubstring("cloud_properties")))
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(call.CPIError.Is(err)).To(BeTrue())
		},
		Entry("an unknown type", `{"privileged": false, "seccomp_profile": {"type": "Default"}}`,
			`security.seccomp_profile.type "Default" is none of RuntimeDefault, Localhost, Unconfined`),
		Entry("no type", `{"privileged": false, "apparmor_profile": {}}`, `security.apparmor_profile.type "" is none of`),
		Entry("a profile of the nodes without a name", `{"privileged": false, "apparmor_profile": {"type": "Localhost"}}`,
			"security.apparmor_profile.localhostProfile is missing"),
		Entry("a name for the runtime's", `{"privileged": false, "seccomp_profile": {"type": "RuntimeDefault", "localhostProfile": "a"}}`,
			"security.seccomp_profile.localhostProfile needs type Localhost"),
		Entry("a path out of the kubelet's folder", `{"privileged": false, "seccomp_profile": {"type": "Localhost", "localhostProfile": "../a"}}`,
			`security.seccomp_profile.localhostProfile "../a" is not a path below`),
		Entry("a key in BOSH's form", `{"privileged": false, "seccomp_profile": {"type": "Localhost", "localhost_profile": "a"}}`, `did you mean "localhostProfile"?`),
		Entry("seccomp's of a privileged machine", `{"seccomp_profile": {"type": "RuntimeDefault"}}`,
			"seccomp_profile of type RuntimeDefault does nothing for a privileged machine: set cloud_properties.security.privileged to false"),
		Entry("seccomp's on the nodes of a privileged machine", `{"privileged": true, "seccomp_profile": {"type": "Localhost", "localhostProfile": "a"}}`,
			"does nothing for a privileged machine"),
		Entry("AppArmor's of the runtime, of a privileged machine", `{"apparmor_profile": {"type": "RuntimeDefault"}}`, "does nothing for a privileged machine"),
	)
})
