package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// parseAddresses parses the value of the annotation: "ip" or "ip4,ip6".
func parseAddresses(value string) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for element := range strings.SplitSeq(value, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(element))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not an IP address", element)
		case address.Zone() != "" || address.Is4In6() || address.IsUnspecified() || address.IsLoopback() || address.IsMulticast():
			return nil, fmt.Errorf("%s is not a valid Pod address", address)
		case slices.ContainsFunc(addresses, func(other netip.Addr) bool { return other.Is4() == address.Is4() }):
			return nil, errors.New("more than one address per IP family; request at most one IPv4 and one IPv6 address")
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// formatAddresses formats the addresses for the delegate. If there are subnets, it adds the prefix length of the matching subnet.
func formatAddresses(addresses []netip.Addr, subnets []netip.Prefix) ([]string, error) {
	var formatted []string
	for _, address := range addresses {
		if len(subnets) == 0 {
			formatted = append(formatted, address.String())
			continue
		}
		i := slices.IndexFunc(subnets, func(subnet netip.Prefix) bool { return subnet.Contains(address) })
		if i < 0 {
			return nil, fmt.Errorf("%s is not in any of the configured subnets %v", address, subnets)
		}
		formatted = append(formatted, netip.PrefixFrom(address, subnets[i].Bits()).String())
	}
	return formatted, nil
}

// resultAddresses returns the addresses in the result of ADD (specification, section 5: Result Types, Success).
func resultAddresses(result []byte) ([]netip.Addr, error) {
	var document struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &document); err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, ip := range document.IPs {
		addresses = append(addresses, ip.Address.Addr().Unmap())
	}
	return addresses, nil
}

// describeAddresses formats the addresses for a message, or "none".
func describeAddresses(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return "none"
	}
	formatted := make([]string, 0, len(addresses))
	for _, address := range addresses {
		formatted = append(formatted, address.String())
	}
	return strings.Join(formatted, ",")
}
