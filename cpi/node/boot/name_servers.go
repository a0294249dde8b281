//go:build linux

package boot

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// saveNameServers keeps the Pod's name servers if the VM's networks have none. With resolvconf, the agent rewrites resolv.conf with the
// name servers of the networks. saveFallbackNameServers does the same for systemd. The image's /run may contain the name servers of the
// host on which the stemcell was built; on other VMs, /run is empty at boot.
func (v *vm) saveNameServers(context.Context) error {
	const tail = "/etc/resolvconf/resolv.conf.d/tail"
	exists, err := files.IsDirectory(v.sys, filepath.Dir(tail))
	if err != nil || !exists {
		return err
	}
	if err := v.removeContent("/run/resolvconf/interface"); err != nil {
		return err
	}
	if err := v.sys.Remove(tail); err != nil {
		return err
	}
	networks, err := files.Read(v.sys, settings+"/name-servers")
	if err != nil || len(networks) > 0 {
		return err
	}
	content, err := v.sys.ReadFile("/etc/resolv.conf")
	if err != nil {
		return err
	}
	return v.sys.WriteFile(tail, content, 0o644)
}

// saveFallbackNameServers lets systemd-resolved use the name servers of this resolv.conf until the agent configures others.
func (v *vm) saveFallbackNameServers(resolvConf []byte) error {
	link, err := v.sys.Readlink("/etc/resolv.conf")
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) { // EINVAL: not a link
		return err
	}
	if !strings.Contains(link, "systemd/resolve") {
		return nil
	}
	return v.sys.WriteFile("/run/systemd/resolved.conf.d/kubernetes.conf", fallbackNameServers(string(resolvConf)), 0o644)
}

// fallbackNameServers returns the configuration of systemd-resolved with the name servers and search domains of a resolv.conf(5).
func fallbackNameServers(resolvConf string) []byte {
	var servers, domains []string
	for line := range strings.Lines(resolvConf) {
		switch fields := strings.Fields(line); {
		case len(fields) > 1 && fields[0] == "nameserver":
			servers = append(servers, fields[1])
		case len(fields) > 1 && fields[0] == "search":
			domains = fields[1:] // the last line counts
		}
	}
	return []byte("[Resolve]\nFallbackDNS=" + strings.Join(servers, " ") + "\nDomains=" + strings.Join(domains, " ") + "\n")
}
