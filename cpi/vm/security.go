package vm

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
)

// Security says what a machine's container may do.
type Security struct {
	// Privileged is true by default.
	Privileged *bool `json:"privileged"`
	// Capabilities are those of an unprivileged machine.
	Capabilities *corev1.Capabilities `json:"capabilities"`
	// HostUsers false runs the machine in a user namespace.
	HostUsers *bool `json:"host_users"`
	// AppArmorProfile is native. Left out, an unprivileged machine has the container runtime's, which lets nothing mount.
	AppArmorProfile *corev1.AppArmorProfile `json:"apparmor_profile"`
	// SeccompProfile is native, and for unprivileged machines. Left out, such a machine has the one of the kubelet's configuration.
	SeccompProfile *corev1.SeccompProfile `json:"seccomp_profile"`
}

// check refuses profiles that the API server would refuse, in words that name the property, and those that would do nothing: to a
// privileged container Kubernetes applies no seccomp profile, and runtimes none of their own of AppArmor's
// (https://kubernetes.io/docs/tutorials/security/seccomp/; containerd, internal/cri/sputil/apparmor_linux.go).
func (s Security) check() error {
	if given := s.SeccompProfile; given != nil {
		seccomp := securityProfile{"seccomp_profile", string(given.Type), given.LocalhostProfile}
		if err := seccomp.check(); err != nil {
			return err
		}
		if seccomp.isLocalhost() && !filepath.IsLocal(*seccomp.name) {
			return call.Invalid("%s.localhostProfile %q is not a path below the kubelet's folder seccomp", seccomp.key(), *seccomp.name)
		}
		if s.privileged() && seccomp.confines() {
			return seccomp.ineffectiveError()
		}
	}
	if given := s.AppArmorProfile; given != nil {
		appArmor := securityProfile{"apparmor_profile", string(given.Type), given.LocalhostProfile}
		if err := appArmor.check(); err != nil {
			return err
		}
		if s.privileged() && appArmor.confines() && !appArmor.isLocalhost() {
			return appArmor.ineffectiveError()
		}
	}
	return nil
}

func (s Security) privileged() bool { return s.Privileged == nil || *s.Privileged }

// securityProfile is of seccomp or of AppArmor: both have the same types, in the same words.
type securityProfile struct {
	property, kind string
	name           *string // of a Localhost profile
}

func (p securityProfile) key() string { return "cloud_properties.security." + p.property }
func (p securityProfile) isLocalhost() bool {
	return p.kind == string(corev1.SeccompProfileTypeLocalhost)
}
func (p securityProfile) confines() bool {
	return p.kind != string(corev1.SeccompProfileTypeUnconfined)
}

func (p securityProfile) check() error {
	named := p.name != nil && *p.name != ""
	switch corev1.SeccompProfileType(p.kind) {
	case corev1.SeccompProfileTypeLocalhost:
		if !named {
			return call.Invalid("%s.localhostProfile is missing: type Localhost needs a profile that is on the nodes", p.key())
		}
	case corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
		if p.name != nil {
			return call.Invalid("%s.localhostProfile needs type Localhost, and type is %s", p.key(), p.kind)
		}
	default:
		return call.Invalid("%s.type %q is none of RuntimeDefault, Localhost, Unconfined", p.key(), p.kind)
	}
	return nil
}

func (p securityProfile) ineffectiveError() error {
	return call.Invalid("%s of type %s does nothing for a privileged machine: "+
		"set cloud_properties.security.privileged to false, or leave it out", p.key(), p.kind)
}

// securityContext is nil for a machine with the default privileges.
func (s Security) securityContext() *corev1.SecurityContext {
	if s.Privileged == nil && s.Capabilities == nil && s.AppArmorProfile == nil && s.SeccompProfile == nil {
		return nil
	}
	return &corev1.SecurityContext{
		Privileged:      new(s.privileged()),
		Capabilities:    s.Capabilities,
		AppArmorProfile: s.AppArmorProfile,
		SeccompProfile:  s.SeccompProfile,
	}
}
