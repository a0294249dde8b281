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
	// Done is closed when the remote side has closed both directions; nil if it does not report that.
	Done() <-chan struct{}
}

// drainTimeout is how long data of a client is read and discarded after the remote side has closed the connection. Closing a
// connection with unread data resets it, and the client could lose the end of the response.
const drainTimeout = 2 * time.Second

// relay copies data in both directions until both sides have closed their direction: a client that has sent everything still gets the
// response. sent is the data from the client. If the remote side fails, relay returns its error, and resets the client's connection
// to prevent that the client takes a truncated response for a complete one.
func relay(client *net.TCPConn, sent io.Reader, remote upstream) error {
	defer client.Close()
	defer remote.Close()
	sendDone, receiveErr := make(chan struct{}), make(chan error, 1)
	received := &errorRecorder{Reader: remote}
	go func() {
		defer close(sendDone)
		source := &errorRecorder{Reader: sent}
		_, _ = io.Copy(remote, source) // why the remote side accepts no more data shows when reading from it
		if source.err != nil {
			_ = remote.Close() // the client has disconnected
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
		return received.err // nil if the client has disconnected
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

// errorRecorder records the error of reading, except for io.EOF.
type errorRecorder struct {
	io.Reader
	err error
}

func (n *errorRecorder) Read(into []byte) (int, error) {
	count, err := n.Reader.Read(into)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return count, err
}

// directConn is a direct connection, without port-forwarding.
type directConn struct{ *net.TCPConn }

func (directConn) Done() <-chan struct{} { return nil }
