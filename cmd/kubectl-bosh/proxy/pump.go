package proxy

import (
	"io"
	"net"
	"time"
)

// upstream is the far side of a client's connection.
type upstream interface {
	io.ReadWriteCloser
	CloseWrite() error
	// Over is closed when the far side neither sends nor takes anything more; nil where it does not tell.
	Over() <-chan struct{}
}

// lastWords is how long a client is listened to when nobody takes what it sends any more. A connection that is closed
// before all was read is reset, and the client could lose the end of its answer.
const lastWords = 2 * time.Second

// pump carries bytes both ways until both sides have ended, each for itself: a client that has sent all still gets its
// answer. sent is what the client sends. When the far side fails, which is the error, the client's connection is reset, so
// that nothing that was cut off looks whole.
func pump(client *net.TCPConn, sent io.Reader, far upstream) error {
	defer client.Close()
	defer far.Close()
	upward, downward := make(chan struct{}), make(chan error, 1)
	answers := &noting{Reader: far}
	go func() {
		defer close(upward)
		source := &noting{Reader: sent}
		_, _ = io.Copy(far, source) // a far side that takes nothing more says why when it is read
		if source.failed != nil {
			_ = far.Close() // the client is gone, and wants no answer
			return
		}
		_ = far.CloseWrite()
	}()
	go func() {
		_, err := io.Copy(client, answers)
		downward <- err
	}()
	if err := <-downward; err != nil {
		_ = client.SetLinger(0)
		return answers.failed // nothing, when the client is gone
	}
	_ = client.CloseWrite()
	select {
	case <-upward:
	case <-far.Over():
		_ = far.Close()
		_ = client.SetReadDeadline(time.Now().Add(lastWords))
		<-upward
		_, _ = io.Copy(io.Discard, sent)
	}
	return nil
}

// noting keeps the error that reading ended with.
type noting struct {
	io.Reader
	failed error
}

func (n *noting) Read(into []byte) (int, error) {
	count, err := n.Reader.Read(into)
	if err != nil && err != io.EOF {
		n.failed = err
	}
	return count, err
}

// direct is a connection that goes no way round.
type direct struct{ *net.TCPConn }

func (direct) Over() <-chan struct{} { return nil }
