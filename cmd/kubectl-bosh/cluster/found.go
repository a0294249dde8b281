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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/kube"
)

// Found is what a cluster is like. What could not be found out is empty, and Facts say why.
type Found struct {
	Server       kube.ServerInfo
	Namespace    Namespace
	StorageClass string // the default one
	Plugin       Plugin
	Kept         []Range        // of addresses that no Pod gets that does not ask
	Services     []netip.Prefix // ranges of Services' addresses
	API          string         // the API server's URL as Pods reach it
	DNS          string         // the address of the cluster's name servers
	Missing      []string       // rights that whoever asks has not, of those that bringing up a director takes

	// Facts are all of these for people, in the order in which they were asked for.
	Facts []Fact
}

// Fact is what was found, in words, or why it was not.
type Fact struct{ What, Said string }

// Range is one that is kept for those that ask for an address of it, and the object that keeps it.
type Range struct {
	netip.Prefix
	By string
}

// Cluster is one to look at.
type Cluster struct {
	Client *kube.Client

	config  *rest.Config
	context string
	objects dynamic.Interface
	groups  discovery.ServerGroupsInterface
}

// Open returns the cluster of the client, whose connection has these settings, of this context of the kubeconfig.
func Open(client *kube.Client, config *rest.Config, kubeContext string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the server's priority and fairness does the throttling
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := discovery.NewDiscoveryClientForConfig(config)
	return &Cluster{Client: client, config: config, context: kubeContext, objects: objects, groups: groups}, err
}

// Look asks the cluster for all that there is to find. It fails only where the API server does not answer, or does not
// know who asks.
func (c *Cluster) Look(ctx context.Context) (*Found, error) {
	f := &Found{}
	var err error
	if f.Server, err = c.Client.GetServerInfo(ctx); err != nil {
		return nil, err
	}
	f.say("API server", Identity{Server: f.Server.URL, Context: c.context}.String()+", "+f.Server.Version)
	for _, each := range []struct {
		what string
		look func(context.Context, *Found) (string, error)
	}{
		{"namespace", c.lookAtNamespace},
		{"rights", c.lookAtRights},
		{"storage class", c.lookAtStorage},
		{"network plugin", c.lookAtPlugin},
		{"kept addresses", c.lookAtKept},
		{"Pod addresses", c.lookAtPods},
		{"Service addresses", c.lookAtServices},
		{"API for Pods", c.lookAtAPI},
		{"name servers", c.lookAtDNS},
	} {
		said, err := each.look(ctx, f)
		if err != nil {
			said = "not known: " + err.Error()
		}
		f.say(each.what, said)
	}
	return f, ctx.Err()
}

func (f *Found) say(what, said string) { f.Facts = append(f.Facts, Fact{what, said}) }

func (c *Cluster) lookAtStorage(ctx context.Context, f *Found) (string, error) {
	classes, err := c.Client.StorageClasses()
	if err != nil {
		return "", err
	}
	all, err := classes.List(ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	// Of several, Kubernetes takes the newest.
	var standard *storagev1.StorageClass
	for _, class := range all.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" &&
			(standard == nil || standard.CreationTimestamp.Before(&class.CreationTimestamp)) {
			standard = class
		}
	}
	if standard == nil {
		return "no default: annotate one with storageclass.kubernetes.io/is-default-class=true, or name storage_class in cloud_properties", nil
	}
	f.StorageClass = standard.Name
	return standard.Name + " by " + standard.Provisioner, nil
}

// lookAtPods looks for the ranges of Pods' addresses, as far as the cluster knows of them: networks have their own.
func (c *Cluster) lookAtPods(ctx context.Context, _ *Found) (string, error) {
	nodes, err := c.Client.Nodes.List(ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	var ranges []string
	for _, node := range nodes.Items {
		for _, each := range node.Spec.PodCIDRs {
			if !slices.Contains(ranges, each) {
				ranges = append(ranges, each)
			}
		}
	}
	const few = 4
	switch {
	case len(ranges) == 0:
		return "the nodes have no ranges of their own", nil
	case len(ranges) > few:
		return fmt.Sprintf("%s and %d ranges more, of the nodes", strings.Join(ranges[:few], ", "), len(ranges)-few), nil
	}
	return strings.Join(ranges, ", ") + " of the nodes", nil
}

// lookAtAPI looks for the Service by which Pods reach the API server.
func (c *Cluster) lookAtAPI(ctx context.Context, f *Found) (string, error) {
	service, err := c.services(ctx, "default", "kubernetes")
	if err != nil {
		return "", err
	}
	if len(service) == 0 || len(service[0].Spec.Ports) == 0 {
		return "no Service default/kubernetes", nil
	}
	f.API = "https://" + net.JoinHostPort(service[0].Spec.ClusterIP, strconv.Itoa(int(service[0].Spec.Ports[0].Port)))
	return f.API, nil
}

// lookAtDNS looks for the cluster's name servers, which have the same label everywhere.
func (c *Cluster) lookAtDNS(ctx context.Context, f *Found) (string, error) {
	const usual = "kube-dns"
	services, err := c.services(ctx, systemNamespace, "")
	if errors.Is(err, kube.ErrRefused) { // who may not list them all may see the one that most clusters have
		services, err = c.services(ctx, systemNamespace, usual)
	}
	if err != nil {
		return "", err
	}
	for _, service := range services {
		if service.Labels["k8s-app"] == usual || service.Name == usual {
			f.DNS = service.Spec.ClusterIP
			return f.DNS + ", Service kube-system/" + service.Name, nil
		}
	}
	return "no Service of kube-dns in kube-system: give the cloud config's cluster_dns yourself", nil
}

// services are those of a namespace, or the one of this name.
func (c *Cluster) services(ctx context.Context, namespace, name string) ([]*corev1.Service, error) {
	client, err := kube.NewFor(c.config, namespace, patience)
	if err != nil {
		return nil, err
	}
	found, err := client.Services.List(ctx, kube.Selection{Name: name})
	return found.Items, err
}

// names are those of the objects of a list.
func names(of *unstructured.UnstructuredList) []string {
	found := make([]string, 0, len(of.Items))
	for _, each := range of.Items {
		found = append(found, each.GetName())
	}
	return found
}
