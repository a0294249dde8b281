package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

// Inspection is the result of inspecting a cluster. A field is empty if its value is unknown, and Findings contain the reason.
type Inspection struct {
	Server                kube.ServerInfo
	Namespace             Namespace
	DefaultStorageClass   string
	NoDefaultStorageClass bool
	NetworkPlugin         network.DetectedPlugin
	ReservedRanges        []network.AddressRange // ranges that are assigned on request only
	ServiceRanges         []netip.Prefix         // ranges of Service addresses
	APIURL                string                 // URL at which Pods reach the API server
	DNSAddress            string                 // address of the cluster's DNS Service
	MissingPermissions    []string               // permissions that the operator lacks to create a director

	// Findings describe the cluster to the operator, in the order of the inspection.
	Findings []ReportLine

	nodes []*corev1.Node // nil until listNodes succeeds
}

// ReportLine is a line of the inspection report: a name with its value, or with the reason why the value is unknown.
type ReportLine struct{ Name, Value string }

// Cluster is a Kubernetes cluster.
type Cluster struct {
	Client *kube.Client

	config        *rest.Config
	contextName   string
	dynamicClient dynamic.Interface
}

// Open returns the cluster of the client. config holds the client's connection settings, and kubeContext is the kubeconfig's context.
func Open(client *kube.Client, config *rest.Config, kubeContext string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // API Priority and Fairness of the API server throttles requests
	dynamicClient, err := dynamic.NewForConfig(config)
	return &Cluster{Client: client, config: config, contextName: kubeContext, dynamicClient: dynamicClient}, err
}

// Inspect inspects the cluster. It fails only if the API server does not respond or rejects the credentials. Other failures are
// reported as findings.
func (c *Cluster) Inspect(ctx context.Context) (*Inspection, error) {
	result := &Inspection{}
	var err error
	if result.Server, err = c.Client.GetServerInfo(ctx); err != nil {
		return nil, err
	}
	result.addFinding("API server", Identity{Server: result.Server.URL, Context: c.contextName}.String()+", "+result.Server.Version)
	for _, step := range []struct {
		name    string
		inspect func(context.Context, *Inspection) (string, error)
	}{
		{"namespace", c.inspectNamespace},
		{"permissions", c.inspectPermissions},
		{"nodes", c.inspectNodes},
		{"storage class", c.inspectStorageClass},
		{"network plugin", c.inspectNetworkPlugin},
		{"reserved ranges", c.inspectReservedRanges},
		{"Pod ranges", c.inspectPodRanges},
		{"Service ranges", c.inspectServiceRanges},
		{"in-cluster API", c.inspectInClusterAPI},
		{"cluster DNS", c.inspectDNS},
	} {
		value, err := step.inspect(ctx, result)
		if err != nil {
			value = "unknown: " + err.Error()
		}
		result.addFinding(step.name, value)
	}
	return result, ctx.Err()
}

func (i *Inspection) addFinding(name, value string) {
	i.Findings = append(i.Findings, ReportLine{name, value})
}

// listNodes returns the nodes, which it lists only once.
func (c *Cluster) listNodes(ctx context.Context, result *Inspection) ([]*corev1.Node, error) {
	if result.nodes == nil {
		nodes, err := c.Client.Nodes.List(ctx, kube.Selection{})
		if err != nil {
			return nil, err
		}
		result.nodes = nodes.Items
	}
	return result.nodes, nil
}

// inspectNodes describes the number of nodes and their architectures.
func (c *Cluster) inspectNodes(ctx context.Context, result *Inspection) (string, error) {
	nodes, err := c.listNodes(ctx, result)
	if err != nil {
		return "", err
	}
	var architectures []string
	for _, node := range nodes {
		if architecture := node.Labels[corev1.LabelArchStable]; architecture != "" {
			architectures = append(architectures, architecture)
		}
	}
	slices.Sort(architectures)
	architectures = slices.Compact(architectures)
	if len(architectures) == 0 {
		return fmt.Sprintf("%d, of unknown architectures", len(nodes)), nil
	}
	description := fmt.Sprintf("%d (%s)", len(nodes), strings.Join(architectures, ", "))
	if !slices.Contains(architectures, "amd64") {
		description += "; BOSH publishes stemcells for amd64 only (docs/guides/clusters.md#macos-and-apple-silicon)"
	}
	return description, nil
}

func (c *Cluster) inspectStorageClass(ctx context.Context, result *Inspection) (string, error) {
	classes := c.Client.StorageClasses()
	list, err := classes.List(ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	// If there are several default classes, Kubernetes uses the newest one.
	var defaultClass *storagev1.StorageClass
	for _, class := range list.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" &&
			(defaultClass == nil || defaultClass.CreationTimestamp.Before(&class.CreationTimestamp)) {
			defaultClass = class
		}
	}
	if defaultClass == nil {
		result.NoDefaultStorageClass = true
		if len(list.Items) == 0 {
			return "none; install a CSI driver with a StorageClass, see docs/guides/clusters.md", nil
		}
		return "no default; annotate a StorageClass with storageclass.kubernetes.io/is-default-class=true, " +
			"or set storage_class in cloud_properties", nil
	}
	result.DefaultStorageClass = defaultClass.Name
	return defaultClass.Name + " (provisioner " + defaultClass.Provisioner + ")", nil
}

// inspectPodRanges describes the Pod CIDRs of the nodes. Network plugins may use other ranges.
func (c *Cluster) inspectPodRanges(ctx context.Context, result *Inspection) (string, error) {
	nodes, err := c.listNodes(ctx, result)
	if err != nil {
		return "", err
	}
	var ranges []string
	for _, node := range nodes {
		for _, podCIDR := range node.Spec.PodCIDRs {
			if !slices.Contains(ranges, podCIDR) {
				ranges = append(ranges, podCIDR)
			}
		}
	}
	const maxShown = 4
	switch {
	case len(ranges) == 0:
		return "unknown: the nodes have no Pod CIDRs", nil
	case len(ranges) > maxShown:
		return fmt.Sprintf("%s and %d more (Pod CIDRs of the nodes)", strings.Join(ranges[:maxShown], ", "), len(ranges)-maxShown), nil
	}
	return strings.Join(ranges, ", ") + " (Pod CIDRs of the nodes)", nil
}

// inspectInClusterAPI finds the Service through which Pods reach the API server.
func (c *Cluster) inspectInClusterAPI(ctx context.Context, result *Inspection) (string, error) {
	services, err := c.listServices(ctx, "default", "kubernetes")
	if err != nil {
		return "", err
	}
	if len(services) == 0 || len(services[0].Spec.Ports) == 0 {
		return "unknown: no Service default/kubernetes", nil
	}
	result.APIURL = "https://" + net.JoinHostPort(services[0].Spec.ClusterIP, strconv.Itoa(int(services[0].Spec.Ports[0].Port)))
	return result.APIURL, nil
}

// inspectDNS finds the Service of the cluster's DNS, which has the same label in all distributions except OpenShift.
func (c *Cluster) inspectDNS(ctx context.Context, result *Inspection) (string, error) {
	const defaultName = "kube-dns"
	services, err := c.listServices(ctx, systemNamespace, "")
	if errors.Is(err, kube.ErrDenied) { // without permission to list, try the usual name
		services, err = c.listServices(ctx, systemNamespace, defaultName)
	}
	if err != nil {
		return "", err
	}
	for _, service := range services {
		if service.Labels["k8s-app"] == defaultName || service.Name == defaultName {
			result.DNSAddress = service.Spec.ClusterIP
			return result.DNSAddress + " (Service kube-system/" + service.Name + ")", nil
		}
	}
	if services, err := c.listServices(ctx, "openshift-dns", "dns-default"); err == nil && len(services) > 0 {
		result.DNSAddress = services[0].Spec.ClusterIP
		return result.DNSAddress + " (Service openshift-dns/dns-default)", nil
	}
	return "unknown: no Service kube-dns in namespace kube-system; set cluster_dns in cloud-config-vars.yml", nil
}

// listServices returns the Services of a namespace. If name is not empty, it returns only the Service with that name.
func (c *Cluster) listServices(ctx context.Context, namespace, name string) ([]*corev1.Service, error) {
	client, err := kube.NewForConfig(c.config, namespace, retryTimeout)
	if err != nil {
		return nil, err
	}
	found, err := client.Services.List(ctx, kube.Selection{Name: name})
	return found.Items, err
}
