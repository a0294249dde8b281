package vm

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/call"
)

var _ = Describe("The cloud property security", func() {
	parse := func(security string) (Properties, error) {
		return parseProperties(json.RawMessage(`{"security": ` + security + `}`))
	}

	DescribeTable("sets the profiles of the VM's container",
		func(security, context string) {
			properties, err := parse(security)
			Expect(err).NotTo(HaveOccurred())
			raw, err := json.Marshal(properties.Security.securityContext())
			Expect(err).NotTo(HaveOccurred())
			Expect(raw).To(MatchJSON(context))
		},
		Entry("RuntimeDefault",
			`{"privileged": false, "seccomp_profile": {"type": "RuntimeDefault"}, "apparmor_profile": {"type": "RuntimeDefault"}}`,
			`{"privileged": false, "seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"}}`),
		Entry("Localhost", `{"privileged": false, "seccomp_profile": {"type": "Localhost", "localhostProfile": "bosh/vm.json"},
			"apparmor_profile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`,
			`{"privileged": false, "seccompProfile": {"type": "Localhost", "localhostProfile": "bosh/vm.json"},
			"appArmorProfile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`),
		Entry("Unconfined", `{"privileged": false, "seccomp_profile": {"type": "Unconfined"}, "apparmor_profile": {"type": "Unconfined"}}`,
			`{"privileged": false, "seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"}}`),
		Entry("an AppArmor profile of type Localhost for a privileged VM",
			`{"apparmor_profile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`,
			`{"privileged": true, "appArmorProfile": {"type": "Localhost", "localhostProfile": "bosh-vm"}}`),
		Entry("a seccomp profile of type Unconfined for a privileged VM",
			`{"seccomp_profile": {"type": "Unconfined"}}`, `{"privileged": true, "seccompProfile": {"type": "Unconfined"}}`),
	)

	DescribeTable("rejects profiles and capabilities that are invalid or have no effect",
		func(security, message string) {
			_, err := parse(security)
			Expect(err).To(MatchError(ContainSubstring("cloud_properties")))
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(call.CPIError.Is(err)).To(BeTrue())
		},
		Entry("capabilities of a privileged VM", `{"capabilities": {"drop": ["SYS_ADMIN"]}}`,
			"security.capabilities have no effect on a privileged VM"),
		Entry("an unknown type", `{"privileged": false, "seccomp_profile": {"type": "Default"}}`,
			`security.seccomp_profile.type "Default" is not valid; use RuntimeDefault, Localhost or Unconfined`),
		Entry("a missing type", `{"privileged": false, "apparmor_profile": {}}`, `security.apparmor_profile.type "" is not valid`),
		Entry("type Localhost without a name", `{"privileged": false, "apparmor_profile": {"type": "Localhost"}}`,
			"security.apparmor_profile.localhostProfile is missing"),
		Entry("type RuntimeDefault with a name",
			`{"privileged": false, "seccomp_profile": {"type": "RuntimeDefault", "localhostProfile": "a"}}`,
			"security.seccomp_profile.localhostProfile requires type Localhost"),
		Entry("a path outside of the kubelet's seccomp directory",
			`{"privileged": false, "seccomp_profile": {"type": "Localhost", "localhostProfile": "../a"}}`,
			`security.seccomp_profile.localhostProfile "../a" is not a path relative to`),
		Entry("a key in snake case",
			`{"privileged": false, "seccomp_profile": {"type": "Localhost", "localhost_profile": "a"}}`, `did you mean "localhostProfile"?`),
		Entry("a seccomp profile of type RuntimeDefault for a privileged VM", `{"seccomp_profile": {"type": "RuntimeDefault"}}`,
			"seccomp_profile of type RuntimeDefault has no effect on a privileged VM; set cloud_properties.security.privileged to false"),
		Entry("a seccomp profile of type Localhost for a privileged VM",
			`{"privileged": true, "seccomp_profile": {"type": "Localhost", "localhostProfile": "a"}}`,
			"has no effect on a privileged VM"),
		Entry("an AppArmor profile of type RuntimeDefault for a privileged VM", `{"apparmor_profile": {"type": "RuntimeDefault"}}`,
			"has no effect on a privileged VM"),
	)
})
