package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Each node except the first has a network namespace, connected to the host by a veth pair. A bridge process makes ports on the
// host's loopback interface available at the same addresses in the namespace. It also adds routes to the node's Pods, because the
// cluster does not use BGP. The bridge process of the first node makes the ports available to Pods, at the node's address.

// HostAddress returns the address of the host's end of the node's veth pair.
func (n *Node) HostAddress() string {
	return n.Address[:strings.LastIndex(n.Address, ".")] + ".1"
}

func (n *Node) joinNetwork(ctx context.Context) error {
	if n.Network == "" {
		_, err := Run(ctx, "ip", "address", "replace", n.Address+"/32", "dev", "lo") // the kubelet rejects 127.0.0.1
		return err
	}
	if _, err := os.Stat("/run/netns/" + n.Network); err == nil {
		return nil
	}
	inNamespace := func(args ...string) []string {
		return append([]string{"nsenter", "--net=/run/netns/" + n.Network}, args...)
	}
	for _, command := range [][]string{
		{"ip", "netns", "add", n.Network},
		{"ip", "link", "add", n.Network, "type", "veth", "peer", "name", "eth0", "netns", n.Network},
		{"ip", "address", "add", n.HostAddress() + "/30", "dev", n.Network},
		{"ip", "link", "set", n.Network, "up"},
		{"sysctl", "-qw", "net.ipv4.conf." + n.Network + ".forwarding=1"},
		inNamespace("ip", "link", "set", "lo", "up"),
		inNamespace("ip", "address", "add", n.Address+"/30", "dev", "eth0"),
		inNamespace("ip", "link", "set", "eth0", "up"),
		inNamespace("ip", "route", "add", "default", "via", n.HostAddress()),
		inNamespace("sysctl", "-qw", "net.ipv4.ip_forward=1"),
	} {
		if _, err := Run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// ChangeAddress gives a node that is off another address, as Docker can do when it starts the nodes of kind. The node must have a network
// namespace of its own.
func (n *Node) ChangeAddress(ctx context.Context, address string) error {
	if n.Network == "" {
		return errors.New("the node uses the network namespace of the host")
	}
	if err := n.leaveNetwork(ctx); err != nil {
		return err
	}
	n.Address = address
	return n.configure()
}

func (n *Node) leaveNetwork(ctx context.Context) error {
	if n.Network == "" {
		assigned, err := Run(ctx, "ip", "address", "show", "dev", "lo", "to", n.Address+"/32")
		if err != nil || assigned == "" {
			return err
		}
		if err := n.deleteServiceRules(ctx); err != nil {
			return err
		}
		_, err = Run(ctx, "ip", "address", "delete", n.Address+"/32", "dev", "lo")
		return err
	}
	if _, err := os.Stat("/run/netns/" + n.Network); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, err := Run(ctx, "ip", "netns", "delete", n.Network) // deletes the veth pair and its routes, too
	return err
}

// bridge returns the process that runs ServeBridge.
func (n *Node) bridge() Process {
	return Process{Name: "bridge", Dir: n.Dir, Args: []string{"embedded", "bridge", "-dir", n.ControlPlane.Dir, "-node", n.Name, "-address", n.Address}}
}

// ServeBridge forwards these loopback ports from the node's network namespace to the host, and maintains routes to the node's Pods,
// until the context is canceled. If the node uses the host's network namespace, ServeBridge forwards the ports of the node's address.
func (n *Node) ServeBridge(ctx context.Context, ports ...int) error {
	if n.Network == "" {
		if err := forwardToLoopback(n.Address, ports); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	for _, port := range ports {
		if _, err := ForwardLoopback(n.Network, port); err != nil {
			return err
		}
	}
	return n.serveRoutes(ctx)
}

// serveRoutes maintains routes to the node's Pods until the context is canceled.
func (n *Node) serveRoutes(ctx context.Context) error {
	_, client, err := n.ControlPlane.AdminClient()
	if err != nil {
		return err
	}
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName=" + n.Name
	})).Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(n.routes(ctx)); err != nil {
		return err
	}
	pods.Run(ctx.Done())
	return nil
}

// InNetworkNamespace runs do in the network namespace with this name, on the current thread only. Sockets stay in the namespace in
// which they are created.
func InNetworkNamespace(network string, do func() error) error {
	runtime.LockOSThread()
	original, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer original.Close()
	target, err := os.Open("/run/netns/" + network)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	doErr := do()
	if err := unix.Setns(int(original.Fd()), unix.CLONE_NEWNET); err != nil {
		return err // the thread stays locked and exits with its goroutine
	}
	runtime.UnlockOSThread()
	return doErr
}

// ForwardLoopback forwards this port of the loopback interface in the network namespace to the same port on the host, until the
// listener is closed.
func ForwardLoopback(network string, port int) (net.Listener, error) {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	var listener net.Listener
	err := InNetworkNamespace(network, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s in %s: %w", address, network, err)
	}
	go acceptAndForward(listener, address)
	return listener, nil
}

func acceptAndForward(listener net.Listener, target string) {
	for {
		inbound, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer inbound.Close()
			outbound, err := net.DialTimeout("tcp", target, 5*time.Second)
			if err != nil {
				return
			}
			defer outbound.Close()
			done := make(chan struct{}, 2)
			for _, pair := range [][2]net.Conn{{inbound, outbound}, {outbound, inbound}} {
				go func() { _, _ = io.Copy(pair[0], pair[1]); done <- struct{}{} }()
			}
			<-done
		}()
	}
}

// routes returns an event handler for the node's Pods that maintains their routes.
func (n *Node) routes(ctx context.Context) cache.ResourceEventHandler {
	changeRoute := func(verb string, object any) {
		if deleted, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = deleted.Obj
		}
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.HostNetwork || pod.Status.PodIP == "" {
			return
		}
		if _, err := Run(ctx, "ip", "route", verb, pod.Status.PodIP+"/32", "via", n.Address); err != nil && verb == "replace" {
			fmt.Fprintln(os.Stderr, errors.Join(fmt.Errorf("route to %s", pod.Name), err))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changeRoute("replace", object) },
		UpdateFunc: func(_, object any) { changeRoute("replace", object) },
		DeleteFunc: func(object any) { changeRoute("delete", object) },
	}
}
