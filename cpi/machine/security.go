package machine

import corev1 "k8s.io/api/core/v1"

// Security says what a machine's container may do.
type Security struct {
	// Privileged is true by default.
	Privileged *bool `json:"privileged"`
	// Capabilities are those of an unprivileged machine.
	Capabilities *corev1.Capabilities `json:"capabilities"`
	// HostUsers false runs the machine in a user namespace.
	HostUsers       *bool                   `json:"host_users"`
	AppArmorProfile *corev1.AppArmorProfile `json:"apparmor_profile"`
	SeccompProfile  *corev1.SeccompProfile  `json:"seccomp_profile"`
}

// context is nil for a machine with the default privileges.
func (s Security) context() *corev1.SecurityContext {
	if s.Privileged == nil && s.Capabilities == nil && s.AppArmorProfile == nil && s.SeccompProfile == nil {
		return nil
	}
	privileged := s.Privileged == nil || *s.Privileged
	return &corev1.SecurityContext{
		Privileged:      &privileged,
		Capabilities:    s.Capabilities,
		AppArmorProfile: s.AppArmorProfile,
		SeccompProfile:  s.SeccompProfile,
	}
}
