package embedded

import (
	"fmt"
	"os"
	"strconv"
)

// Several clusters fit on one machine: each has a number, from BOSH_KUBERNETES_CPI_INSTANCE, that its
// ports and addresses come from. The ports differ from the usual ones, so as not to meet another
// Kubernetes.
var (
	clusterNumber = func() int {
		number, err := strconv.Atoi(os.Getenv("BOSH_KUBERNETES_CPI_INSTANCE"))
		if err != nil || number < 0 || number > 5 {
			return 0
		}
		return number
	}()

	apiPort      = 16443 + 100*clusterNumber
	etcdPort     = 12379 + 100*clusterNumber
	etcdPeerPort = 12380 + 100*clusterNumber
	kubeletPort  = 11250 + 100*clusterNumber
	registryPort = 15000 + 100*clusterNumber

	// BOSHNetworkPrefix begins the addresses of BOSH's manual networks: 10.N.128.0/17. Calico gives an address
	// of it only to a Pod that asks for it; the lower half, 10.N.0.0/17, is Calico's to give out.
	BOSHNetworkPrefix = fmt.Sprintf("10.%d", 240+clusterNumber)
	podCIDR           = BOSHNetworkPrefix + ".0.0/17"
	boshCIDR          = BOSHNetworkPrefix + ".128.0/17"
	// BOSHGateway is the gateway of BOSH's manual networks.
	BOSHGateway = BOSHNetworkPrefix + ".128.1"
)

// vmNodeNumber is which node the computer is: none that can be one of NodeNames.
const vmNodeNumber = 5

// nodeAddress is the InternalIP of the cluster's nth node.
func nodeAddress(n int) string {
	if n == 0 {
		return fmt.Sprintf("10.239.%d.1", 10*clusterNumber)
	}
	return fmt.Sprintf("10.239.%d.2", 10*clusterNumber+n)
}

// networkName is the name of the nth node's network namespace, and of its veth device; the first node
// has none.
func networkName(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("bosh%d-node%d", clusterNumber, n+1)
}
