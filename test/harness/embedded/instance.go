package embedded

import (
	"fmt"
	"os"
	"strconv"
)

// One host can run several clusters. BOSH_KUBERNETES_CPI_INSTANCE is the number of a cluster, and determines its ports and
// addresses. The ports differ from the defaults, to avoid conflicts with another Kubernetes cluster. Only cluster 0 has Services.
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

	// BOSHNetworkPrefix is the prefix of the cluster's address ranges. 10.N.128.0/17 is the reserved range of BOSH's manual
	// networks: Calico assigns its addresses on request only. Calico assigns addresses in 10.N.0.0/17 to all other Pods.
	BOSHNetworkPrefix = fmt.Sprintf("10.%d", 240+clusterNumber)
	podCIDR           = BOSHNetworkPrefix + ".0.0/17"
	boshCIDR          = BOSHNetworkPrefix + ".128.0/17"
	// BOSHGateway is the gateway of BOSH's manual networks.
	BOSHGateway = BOSHNetworkPrefix + ".128.1"
)

// vmNodeNumber is the number of the VM node. It follows the numbers of NodeNames.
const vmNodeNumber = 5

// SpareNodeAddress is an address that no node of a new cluster has; see Node.ChangeAddress.
var SpareNodeAddress = nodeAddress(vmNodeNumber + 1)

// nodeAddress returns the InternalIP of the cluster's nth node.
func nodeAddress(n int) string {
	if n == 0 {
		return fmt.Sprintf("10.239.%d.1", 10*clusterNumber)
	}
	return fmt.Sprintf("10.239.%d.2", 10*clusterNumber+n)
}

// networkName returns the name of the nth node's network namespace and of its veth device. It returns "" for the first node, which
// uses the host's network namespace.
func networkName(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("bosh%d-node%d", clusterNumber, n+1)
}
