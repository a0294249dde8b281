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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// ErrConnectionLost means that the connection broke, and that sent data may be lost.
var ErrConnectionLost = errors.New("the connection to the API server was lost")

// Forwarder opens streams to ports of Pods.
//
// Each stream has a separate connection to the API server. SPDY can multiplex streams, but without flow control for each of them: a
// client that reads slowly would block all others.
type Forwarder struct {
	Client *kube.Client
	Config *rest.Config
}

// Dial opens a stream to the port on the loopback interface of the Pod. If nothing listens there, reading from the stream fails.
func (f *Forwarder) Dial(ctx context.Context, pod manifest.VMPod, port int32) (*Stream, error) {
	type dialed struct {
		stream *Stream
		err    error
	}
	result := make(chan dialed, 1)
	go func() { // client-go's dialers have no context
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

func (f *Forwarder) dial(pod manifest.VMPod, port int32) (*Stream, error) {
	dialer, err := f.newDialer(f.Client.Pods.URL(pod.Name, "portforward"))
	if err != nil {
		return nil, err
	}
	conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("port-forward to Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		conn.Close()
		return nil, fmt.Errorf("port-forward to Pod %s/%s: the server selected the unsupported protocol %q", pod.Namespace, pod.Name, protocol)
	}
	stream, err := newStream(conn, port)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("port-forward to port %d of Pod %s/%s: %w", port, pod.Namespace, pod.Name, err)
	}
	return stream, nil
}

// newDialer returns a dialer that uses WebSocket, and falls back to SPDY, like kubectl.
func (f *Forwarder) newDialer(location *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(f.Config)
	if err != nil {
		return nil, err
	}
	spdyDialer := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, location)
	webSocketDialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(location, f.Config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(webSocketDialer, spdyDialer, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// Stream is a connection to a port of a Pod. Read returns io.EOF only if the node reports success. Otherwise it returns the node's
// error.
type Stream struct {
	conn                    httpstream.Connection
	dataStream, errorStream httpstream.Stream
	done                    chan struct{} // closed when the node closes both directions
	failure                 error         // cause, valid after done is closed
}

func newStream(conn httpstream.Connection, port int32) (*Stream, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0") // each connection has one request
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	errorStream, err := conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	if err := errorStream.Close(); err != nil { // this stream is only read
		return nil, err
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	dataStream, err := conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	stream := &Stream{conn: conn, dataStream: dataStream, errorStream: errorStream, done: make(chan struct{})}
	go stream.watch()
	return stream, nil
}

// watch reads the error stream, which ends after the data stream.
func (s *Stream) watch() {
	defer close(s.done)
	message, err := io.ReadAll(s.errorStream)
	switch {
	case len(message) > 0:
		s.failure = errors.New(string(message))
	case err != nil:
		s.failure = err
	default:
		select {
		case <-s.conn.CloseChan(): // the connection was closed before the streams
			s.failure = ErrConnectionLost
		default:
			return
		}
	}
	_ = s.dataStream.Reset() // makes Read return the failure
}

// Done returns a channel that is closed when the node closes both directions.
func (s *Stream) Done() <-chan struct{} { return s.done }

func (s *Stream) Read(into []byte) (int, error) {
	n, err := s.dataStream.Read(into)
	if errors.Is(err, io.EOF) {
		<-s.done
		if s.failure != nil {
			err = s.failure
		}
	}
	return n, err
}

func (s *Stream) Write(content []byte) (int, error) { return s.dataStream.Write(content) }

// CloseWrite closes the sending direction. The response can still be read.
func (s *Stream) CloseWrite() error { return s.dataStream.Close() }

// Close closes the stream in both directions.
func (s *Stream) Close() error { return s.conn.Close() }
