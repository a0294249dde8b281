package vm

import (
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
)

// Security is the cloud property `security`: the privileges of a VM's container.
type Security struct {
	// Privileged is true by default.
	Privileged *bool `json:"privileged"`
	// Capabilities are the capabilities of an unprivileged VM.
	Capabilities *corev1.Capabilities `json:"capabilities"`
	// HostUsers runs the VM in a user namespace if it is false.
	HostUsers *bool `json:"host_users"`
	// AppArmorProfile is the native Kubernetes structure. By default, an unprivileged VM has the container runtime's profile, which
	// denies all mounts.
	AppArmorProfile *corev1.AppArmorProfile `json:"apparmor_profile"`
	// SeccompProfile is the native Kubernetes structure, for unprivileged VMs. The default is set in the kubelet's configuration.
	SeccompProfile *corev1.SeccompProfile `json:"seccomp_profile"`
}

// check rejects profiles that the API server would reject, with an error that names the cloud property. It also rejects profiles
// without effect: to a privileged container, Kubernetes applies no seccomp profile, and container runtimes do not apply their
// default AppArmor profile (https://kubernetes.io/docs/tutorials/security/seccomp/; containerd,
// internal/cri/sputil/apparmor_linux.go).
func (s Security) check() error {
	if profile := s.SeccompProfile; profile != nil {
		seccomp := securityProfile{"seccomp_profile", string(profile.Type), profile.LocalhostProfile}
		if err := seccomp.check(); err != nil {
			return err
		}
		if seccomp.isLocalhost() && !filepath.IsLocal(*seccomp.name) {
			return call.InvalidPropertyf("%s.localhostProfile %q is not a path relative to the kubelet's seccomp directory",
				seccomp.key(), *seccomp.name)
		}
		if s.privileged() && seccomp.confines() {
			return seccomp.ineffectiveError()
		}
	}
	if profile := s.AppArmorProfile; profile != nil {
		appArmor := securityProfile{"apparmor_profile", string(profile.Type), profile.LocalhostProfile}
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

// securityProfile is a profile of seccomp or AppArmor. Both have the same types, with the same names.
type securityProfile struct {
	property, kind string
	name           *string // for type Localhost
}

func (p securityProfile) key() string { return "cloud_properties.security." + p.property }
func (p securityProfile) isLocalhost() bool {
	return p.kind == string(corev1.SeccompProfileTypeLocalhost)
}
func (p securityProfile) confines() bool {
	return p.kind != string(corev1.SeccompProfileTypeUnconfined)
}

func (p securityProfile) check() error {
	hasName := p.name != nil && *p.name != ""
	switch corev1.SeccompProfileType(p.kind) {
	case corev1.SeccompProfileTypeLocalhost:
		if !hasName {
			return call.InvalidPropertyf("%s.localhostProfile is missing; type Localhost requires the name of a profile on the nodes", p.key())
		}
	case corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
		if p.name != nil {
			return call.InvalidPropertyf("%s.localhostProfile requires type Localhost, but type is %s", p.key(), p.kind)
		}
	default:
		return call.InvalidPropertyf("%s.type %q is not valid; use RuntimeDefault, Localhost or Unconfined", p.key(), p.kind)
	}
	return nil
}

func (p securityProfile) ineffectiveError() error {
	return call.InvalidPropertyf("%s of type %s has no effect on a privileged VM; "+
		"set cloud_properties.security.privileged to false, or remove the profile", p.key(), p.kind)
}

// errCannotMountDevices explains why a VM with reduced privileges cannot have hot-plugged disks.
var errCannotMountDevices = errors.New("a VM with security.privileged: false or security.host_users: false cannot mount devices; " +
	"set cloud_properties.disk_strategy: recreate")

// securityContext returns the security context of the VM's container, or nil for the default privileges.
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
