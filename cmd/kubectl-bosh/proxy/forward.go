package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"bosh-kubernetes-cpi/kube"
)

// ErrLost means that the way to the Pod broke: whether all that was sent has arrived, nobody knows.
var ErrLost = errors.New("the connection to the API server was lost")

// Forwarder opens streams to ports of Pods.
//
// Each has a connection of its own to the API server. SPDY could carry many, but has no flow control that holds back one
// alone: a client that reads slowly would stop all others.
type Forwarder struct {
	Client *kube.Client
	Config *rest.Config
}

// Dial opens a stream to what listens on the port inside the Pod, on its loopback interface. Whether anything does, the
// stream tells when it is read.
func (f *Forwarder) Dial(ctx context.Context, pod *corev1.Pod, port int32) (*Stream, error) {
	type dialed struct {
		stream *Stream
		err    error
	}
	result := make(chan dialed, 1)
	go func() { // client-go's dialers know no context
		stream, err := f.dial(pod, port)
		result <- dialed{stream, err}
	}()
	select {
	case got := <-result:
		return got.stream, got.err
	case <-ctx.Done():
		go func() {
			if got := <-result; got.err == nil {
				got.stream.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func (f *Forwarder) dial(pod *corev1.Pod, port int32) (*Stream, error) {
	dialer, err := f.dialer(f.Client.Pods.URL(pod.Name, "portforward"))
	if err != nil {
		return nil, err
	}
	connection, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("port-forward to Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		connection.Close()
		return nil, fmt.Errorf("port-forward to Pod %s/%s: the server speaks %q", pod.Namespace, pod.Name, protocol)
	}
	stream, err := newStream(connection, port)
	if err != nil {
		connection.Close()
		return nil, fmt.Errorf("port-forward to port %d of Pod %s/%s: %w", port, pod.Namespace, pod.Name, err)
	}
	return stream, nil
}

// dialer speaks WebSocket, and SPDY where that does not get through, as kubectl does.
func (f *Forwarder) dialer(location *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(f.Config)
	if err != nil {
		return nil, err
	}
	second := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, location)
	first, err := portforward.NewSPDYOverWebsocketDialerForStreaming(location, f.Config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// Stream is a connection to a port of a Pod. Reading ends with io.EOF only once the Pod's node has said that all went
// well, and with its error otherwise.
type Stream struct {
	connection   httpstream.Connection
	data, errors httpstream.Stream
	over         chan struct{} // closed when the node has ended the whole
	failure      error         // why, once it is over
}

func newStream(connection httpstream.Connection, port int32) (*Stream, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0") // the connection's one and only
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	if err := problems.Close(); err != nil { // nothing is written there
		return nil, err
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	stream := &Stream{connection: connection, data: data, errors: problems, over: make(chan struct{})}
	go stream.watch()
	return stream, nil
}

// watch reads the error stream, which ends when the node has done with the data.
func (s *Stream) watch() {
	defer close(s.over)
	message, err := io.ReadAll(s.errors)
	switch {
	case len(message) > 0:
		s.failure = errors.New(string(message))
	case err != nil:
		s.failure = err
	default:
		select {
		case <-s.connection.CloseChan(): // before the streams end, and not after them
			s.failure = ErrLost
		default:
			return
		}
	}
	_ = s.data.Reset() // whoever reads is to hear of it
}

// Over is closed when the Pod's node has ended the stream in both directions.
func (s *Stream) Over() <-chan struct{} { return s.over }

func (s *Stream) Read(into []byte) (int, error) {
	n, err := s.data.Read(into)
	if errors.Is(err, io.EOF) {
		<-s.over
		if s.failure != nil {
			err = s.failure
		}
	}
	return n, err
}

func (s *Stream) Write(content []byte) (int, error) { return s.data.Write(content) }

// CloseWrite tells the Pod that nothing more comes. What it answers can still be read.
func (s *Stream) CloseWrite() error { return s.data.Close() }

// Close ends the stream in both directions.
func (s *Stream) Close() error { return s.connection.Close() }
