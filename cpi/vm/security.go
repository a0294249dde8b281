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

// check rejects profiles that the API server would reject, with an error that names the cloud property. It also rejects what has no effect:
// a privileged container has all capabilities, and to it, Kubernetes applies no seccomp profile, and container runtimes do not apply their
// default AppArmor profile (https://kubernetes.io/docs/tutorials/security/seccomp/; containerd,
// internal/cri/sputil/apparmor_linux.go).
func (s Security) check() error {
	if s.privileged() && s.Capabilities != nil {
		return call.InvalidPropertyf("cloud_properties.security.capabilities have no effect on a privileged VM, which has all; " +
			"set cloud_properties.security.privileged to false, or remove the capabilities")
	}
	if profile := s.SeccompProfile; profile != nil {
		if err := checkProfile("seccomp_profile", string(profile.Type), profile.LocalhostProfile); err != nil {
			return err
		}
		if name := profile.LocalhostProfile; name != nil && !filepath.IsLocal(*name) {
			return call.InvalidPropertyf("cloud_properties.security.seccomp_profile.localhostProfile %q is not a path relative to "+
				"the kubelet's seccomp directory", *name)
		}
		if s.privileged() && profile.Type != corev1.SeccompProfileTypeUnconfined {
			return ineffectiveError("seccomp_profile", string(profile.Type))
		}
	}
	if profile := s.AppArmorProfile; profile != nil {
		if err := checkProfile("apparmor_profile", string(profile.Type), profile.LocalhostProfile); err != nil {
			return err
		}
		if s.privileged() && profile.Type == corev1.AppArmorProfileTypeRuntimeDefault {
			return ineffectiveError("apparmor_profile", string(profile.Type))
		}
	}
	return nil
}

func (s Security) privileged() bool { return s.Privileged == nil || *s.Privileged }

// checkProfile checks a profile of seccomp or AppArmor. Both have the same types, with the same names. localhost is for type Localhost.
func checkProfile(property, kind string, localhost *string) error {
	key := "cloud_properties.security." + property
	switch corev1.SeccompProfileType(kind) {
	case corev1.SeccompProfileTypeLocalhost:
		if localhost == nil || *localhost == "" {
			return call.InvalidPropertyf("%s.localhostProfile is missing; type Localhost requires the name of a profile on the nodes", key)
		}
	case corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
		if localhost != nil {
			return call.InvalidPropertyf("%s.localhostProfile requires type Localhost, but type is %s", key, kind)
		}
	default:
		return call.InvalidPropertyf("%s.type %q is not valid; use RuntimeDefault, Localhost or Unconfined", key, kind)
	}
	return nil
}

func ineffectiveError(property, kind string) error {
	return call.InvalidPropertyf("cloud_properties.security.%s of type %s has no effect on a privileged VM; "+
		"set cloud_properties.security.privileged to false, or remove the profile", property, kind)
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
