package environment

import (
	"cmp"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// directorPorts are the ports of a director to which the BOSH CLI connects: its agent, the API, UAA and CredHub.
var directorPorts = []string{"6868", "25555", "8443", "8844"}

// NoProxy returns the variable NO_PROXY with which the BOSH CLI reaches the director at this address through BOSH_ALL_PROXY, or none if
// neither NO_PROXY nor HTTPS_PROXY is set. The CLI sends requests to the proxy in HTTPS_PROXY, unless NO_PROXY contains the address. But if
// NO_PROXY contains it without a port, or a range with it, the CLI bypasses BOSH_ALL_PROXY, too (bosh-utils/httpclient,
// golang.org/x/net/proxy).
func NoProxy(director string) []Variable {
	current := cmp.Or(os.Getenv("NO_PROXY"), os.Getenv("no_proxy"))
	address, err := netip.ParseAddr(director)
	if err != nil || cmp.Or(current, os.Getenv("HTTPS_PROXY"), os.Getenv("https_proxy")) == "" {
		return nil
	}
	var entries, added []string
	for _, port := range directorPorts {
		added = append(added, net.JoinHostPort(director, port))
	}
	for entry := range strings.SplitSeq(current, ",") {
		entry = strings.TrimSpace(entry)
		if prefix, err := netip.ParsePrefix(entry); err == nil && prefix.Contains(address) {
			entries = append(entries, exclude(prefix, address)...)
		} else if entry != "" && entry != director && !slices.Contains(added, entry) {
			entries = append(entries, entry)
		}
	}
	return []Variable{{"NO_PROXY", strings.Join(append(entries, added...), ",")}}
}

// exclude returns the ranges that contain all addresses of the prefix except this one.
func exclude(prefix netip.Prefix, address netip.Addr) (ranges []string) {
	for bits := prefix.Bits(); bits < address.BitLen(); bits++ {
		sibling := address.AsSlice()
		sibling[bits/8] ^= 0x80 >> (bits % 8)
		other, _ := netip.AddrFromSlice(sibling)
		ranges = append(ranges, netip.PrefixFrom(other, bits+1).Masked().String())
	}
	return ranges
}
