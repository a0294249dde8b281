package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/things-go/go-socks5"
	"github.com/things-go/go-socks5/statute"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/kube"
)

// Server is the SOCKS5 proxy.
type Server struct {
	Finder    *Finder
	Forwarder *Forwarder
	// Direct dials addresses that are no machine's and no Service's from here; without it, they are refused.
	Direct bool
	// Say takes each line of the log.
	Say func(line string)
}

// New is a proxy to what is in the client's namespace.
func New(client *kube.Client, config *rest.Config) *Server {
	return &Server{
		Finder:    &Finder{Client: client},
		Forwarder: &Forwarder{Client: client, Config: config},
		Say:       func(string) {},
	}
}

// Check asks for the namespace's machines, so that what would keep every connection from its machine is said at once.
func (s *Server) Check(ctx context.Context) error {
	_, err := s.Finder.Client.Pods.List(ctx, machines)
	return err
}

// Serve answers the listener's clients until the context ends; then it ends their connections, too.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	server := socks5.NewServer(
		socks5.WithResolver(unresolved{}),
		socks5.WithConnectHandle(func(_ context.Context, writer io.Writer, request *socks5.Request) error {
			client, ok := writer.(*net.TCPConn)
			if !ok {
				return fmt.Errorf("the client is a %T, no TCP connection", writer)
			}
			s.connect(ctx, client, request)
			return nil
		}),
		socks5.WithAssociateHandle(func(_ context.Context, writer io.Writer, _ *socks5.Request) error {
			return socks5.SendReply(writer, statute.RepCommandNotSupported, nil) // port-forward carries TCP alone
		}),
		socks5.WithLogger(unsaid{}),
	)
	err := server.Serve(listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// connect serves one CONNECT to its end.
func (s *Server) connect(ctx context.Context, client *net.TCPConn, request *socks5.Request) {
	host, port := request.DestAddr.FQDN, request.DestAddr.Port
	if host == "" {
		host = request.DestAddr.IP.String()
	}
	address := net.JoinHostPort(host, strconv.Itoa(port))
	far, to, err := s.open(ctx, host, int32(port))
	if err != nil {
		s.Say(fmt.Sprintf("%s: refused: %v%s", address, err, advice(err)))
		_ = socks5.SendReply(client, reply(err), nil)
		return
	}
	stop := context.AfterFunc(ctx, func() { client.Close(); far.Close() })
	defer stop()
	if err := socks5.SendReply(client, statute.RepSuccess, client.LocalAddr()); err != nil {
		far.Close()
		return
	}
	if err := pump(client, request.Reader, far); err != nil && ctx.Err() == nil {
		s.Say(fmt.Sprintf("%s: ended: %s: %v%s", address, to, err, advice(err)))
	}
}

// open opens a stream to who has the address now, and tells who that is. A machine that goes away meanwhile is looked
// for once more.
func (s *Server) open(ctx context.Context, host string, port int32) (far upstream, to string, err error) {
	gone := map[types.UID]bool{}
	for {
		target, err := s.Finder.Find(ctx, host, port, gone)
		if errors.Is(err, ErrNobody) && s.Direct {
			return dialDirect(ctx, host, port)
		}
		if err != nil {
			return nil, "", err
		}
		stream, err := s.Forwarder.Dial(ctx, target.Pod, target.Port)
		if err == nil {
			return stream, target.String(), nil
		}
		now, getErr := s.Forwarder.Client.Pods.Get(ctx, target.Pod.Name)
		if getErr != nil && !errors.Is(getErr, kube.ErrNotFound) || getErr == nil && now.UID == target.Pod.UID && up(now) {
			return nil, "", err
		}
		gone[target.Pod.UID] = true
	}
}

func dialDirect(ctx context.Context, host string, port int32) (upstream, string, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, "", err
	}
	return direct{connection.(*net.TCPConn)}, "directly", nil
}

// unresolved leaves names to the Finder: the cluster's mean nothing here.
type unresolved struct{}

// Resolve returns no address.
func (unresolved) Resolve(ctx context.Context, _ string) (context.Context, net.IP, error) {
	return ctx, nil, nil
}

// unsaid drops what the SOCKS library reports: clients that talk no SOCKS, or that have gone.
type unsaid struct{}

// Errorf does nothing.
func (unsaid) Errorf(string, ...any) {}
