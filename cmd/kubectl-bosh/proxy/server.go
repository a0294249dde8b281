package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/things-go/go-socks5"
	"github.com/things-go/go-socks5/statute"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Server is the SOCKS5 proxy.
type Server struct {
	Finder    *Finder
	Forwarder *Forwarder
	// Direct enables direct connections to addresses that do not belong to a VM or Service. Without Direct, they are refused.
	Direct bool
	// Grace is how long connections to an address of a VM must fail before that is logged. Clients retry while a process starts.
	Grace time.Duration
	// Log writes a line to the log.
	Log func(line string)

	failures failureTimes
}

// New returns a proxy to the VMs and Services of the client's namespace.
func New(client *kube.Client, config *rest.Config) *Server {
	return &Server{
		Finder:    &Finder{Client: client},
		Forwarder: &Forwarder{Client: client, Config: config},
		Log:       func(string) {},
	}
}

// Check returns an error if VMs cannot be listed, because then every connection would fail.
func (s *Server) Check(ctx context.Context) error {
	_, err := s.Finder.Client.Pods.List(ctx, allVMs)
	return err
}

// Serve serves clients until the context is canceled, which also closes their connections.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	server := socks5.NewServer(
		socks5.WithResolver(noResolver{}),
		socks5.WithConnectHandle(func(_ context.Context, writer io.Writer, request *socks5.Request) error {
			client, ok := writer.(*net.TCPConn)
			if !ok {
				return fmt.Errorf("the client connection is a %T, not a TCP connection", writer)
			}
			s.connect(ctx, client, request)
			return nil
		}),
		socks5.WithAssociateHandle(func(_ context.Context, writer io.Writer, _ *socks5.Request) error {
			return socks5.SendReply(writer, statute.RepCommandNotSupported, nil) // port forwarding supports TCP only
		}),
		socks5.WithLogger(discardLogger{}),
	)
	err := server.Serve(listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// connect serves a CONNECT request until its connection is closed.
func (s *Server) connect(ctx context.Context, client *net.TCPConn, request *socks5.Request) {
	host, port := cmp.Or(request.DestAddr.FQDN, request.DestAddr.IP.String()), request.DestAddr.Port
	address := net.JoinHostPort(host, strconv.Itoa(port))
	remote, to, err := s.dial(ctx, host, int32(port))
	if err != nil {
		if !isTransient(err) || s.failures.record(address, time.Now()) >= s.Grace {
			s.Log(fmt.Sprintf("%s: refused: %v%s", address, err, remedy(err)))
		}
		_ = socks5.SendReply(client, socksReply(err), nil)
		return
	}
	stop := context.AfterFunc(ctx, func() { client.Close(); remote.Close() })
	defer stop()
	if err := socks5.SendReply(client, statute.RepSuccess, client.LocalAddr()); err != nil {
		remote.Close()
		return
	}
	err = relay(client, request.Reader, remote)
	switch {
	case err == nil:
		s.failures.clear(address)
	case ctx.Err() == nil && s.failures.record(address, time.Now()) >= s.Grace:
		s.Log(fmt.Sprintf("%s: connection to %s failed: %v%s", address, to, err, remedy(err)))
	}
}

// dial opens a stream to the VM that has the address now, and returns a description of the VM. If the VM is deleted in the meantime,
// it retries without that VM.
func (s *Server) dial(ctx context.Context, host string, port int32) (remote upstream, to string, err error) {
	excluded := map[types.UID]bool{}
	for {
		target, err := s.Finder.Find(ctx, host, port, excluded)
		if errors.Is(err, ErrUnknownAddress) && s.Direct {
			return dialDirect(ctx, host, port)
		}
		if err != nil {
			return nil, "", err
		}
		stream, err := s.Forwarder.Dial(ctx, target.Pod, target.Port)
		if err == nil {
			return stream, target.String(), nil
		}
		current, getErr := s.Forwarder.Client.Pods.Get(ctx, target.Pod.Name)
		sameVMRuns := getErr == nil && current.UID == target.Pod.UID && isRunning(manifest.VMPod{Pod: current})
		if sameVMRuns || getErr != nil && !errors.Is(getErr, kube.ErrNotFound) {
			return nil, "", err
		}
		excluded[target.Pod.UID] = true
	}
}

func dialDirect(ctx context.Context, host string, port int32) (upstream, string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, "", &directError{err}
	}
	return directConn{conn.(*net.TCPConn)}, "directly", nil
}

// noResolver leaves names unresolved: the Finder resolves them, because they are names in the cluster.
type noResolver struct{}

// Resolve returns no address.
func (noResolver) Resolve(ctx context.Context, _ string) (context.Context, net.IP, error) {
	return ctx, nil, nil
}

// discardLogger discards messages of the SOCKS library about clients that do not use SOCKS or disconnect.
type discardLogger struct{}

// Errorf does nothing.
func (discardLogger) Errorf(string, ...any) {}
