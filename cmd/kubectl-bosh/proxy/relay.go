package proxy

import (
	"io"
	"net"
	"time"
)

// upstream is the remote side of a client's connection.
type upstream interface {
	io.ReadWriteCloser
	CloseWrite() error
	// Done returns a channel that is closed when the remote side closes both directions, or nil if it does not report that.
	Done() <-chan struct{}
}

// drainTimeout is how long relay reads and discards data from a client after the remote side closed the connection. Closing a
// connection with unread data resets it, and the client could lose the end of the response.
const drainTimeout = 2 * time.Second

// relay copies data in both directions until both sides close their sending direction. A client that closes its sending direction still
// gets the response. sent is the data from the client. If the remote side fails, relay returns its error and resets the client's
// connection, so that the client does not mistake a truncated response for a complete one.
func relay(client *net.TCPConn, sent io.Reader, remote upstream) error {
	defer client.Close()
	defer remote.Close()
	sendDone, receiveErr := make(chan struct{}), make(chan error, 1)
	received := &errorRecorder{Reader: remote}
	go func() {
		defer close(sendDone)
		source := &errorRecorder{Reader: sent}
		_, _ = io.Copy(remote, source) // reading from the remote side returns the cause of a failure
		if source.err != nil {
			_ = remote.Close() // the client disconnected
			return
		}
		_ = remote.CloseWrite()
	}()
	go func() {
		_, err := io.Copy(client, received)
		receiveErr <- err
	}()
	if err := <-receiveErr; err != nil {
		_ = client.SetLinger(0)
		return received.err // nil if the client disconnected
	}
	_ = client.CloseWrite()
	select {
	case <-sendDone:
	case <-remote.Done():
		_ = remote.Close()
		_ = client.SetReadDeadline(time.Now().Add(drainTimeout))
		<-sendDone
		_, _ = io.Copy(io.Discard, sent)
	}
	return nil
}

// errorRecorder records the read error, except io.EOF.
type errorRecorder struct {
	io.Reader
	err error
}

func (r *errorRecorder) Read(into []byte) (int, error) {
	n, err := r.Reader.Read(into)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// directConn is a direct connection, without port forwarding.
type directConn struct{ *net.TCPConn }

func (directConn) Done() <-chan struct{} { return nil }
