package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// parseAddresses reads an annotation's value: "ip" or "ip4,ip6".
func parseAddresses(value string) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for text := range strings.SplitSeq(value, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(text))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not an IP address", text)
		case address.Zone() != "" || address.Is4In6() || address.IsUnspecified() || address.IsLoopback() || address.IsMulticast():
			return nil, fmt.Errorf("%s is not an address that a Pod can have", address)
		case slices.ContainsFunc(addresses, func(other netip.Addr) bool { return other.Is4() == address.Is4() }):
			return nil, errors.New("a Pod has one IPv4 and one IPv6 address at most")
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// notations returns the addresses as the delegate wants them: bare, or with the prefix length of the
// subnet they are in.
func notations(addresses []netip.Addr, subnets []netip.Prefix) ([]string, error) {
	var texts []string
	for _, address := range addresses {
		if len(subnets) == 0 {
			texts = append(texts, address.String())
			continue
		}
		i := slices.IndexFunc(subnets, func(subnet netip.Prefix) bool { return subnet.Contains(address) })
		if i < 0 {
			return nil, fmt.Errorf("%s is in none of the shim's subnets: %v", address, subnets)
		}
		texts = append(texts, netip.PrefixFrom(address, subnets[i].Bits()).String())
	}
	return texts, nil
}

// given returns the addresses of ADD's result (specification, section 5: Result Types, Success).
func given(result []byte) ([]netip.Addr, error) {
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

// missing returns the wanted addresses that were not given.
func missing(wanted, given []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(wanted), func(address netip.Addr) bool { return slices.Contains(given, address) })
}

func list(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return "none"
	}
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return strings.Join(texts, ",")
}
