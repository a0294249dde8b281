package director

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"bosh-kubernetes-cpi/test/harness/authority"
)

// Bus is a director's message bus: a NATS server that requires client certificates, and the director's connection to it.
type Bus struct {
	// URL is the mbus URL of agents.
	URL string

	issuer   *authority.Authority
	server   *exec.Cmd
	log      bytes.Buffer
	conn     *nats.Conn
	requests atomic.Int64
}

// natsProgram is the name of the server's executable.
const natsProgram = "nats-server"

// StartBus starts a server on this address, with its files in dir. The caller must close it.
func StartBus(ctx context.Context, issuer *authority.Authority, address, dir string) (*Bus, error) {
	port, err := freePort(address)
	if err != nil {
		return nil, err
	}
	b := &Bus{URL: fmt.Sprintf("nats://%s:%d", address, port), issuer: issuer}
	server, err := issuer.Issue(pkix.Name{CommonName: "default.nats.bosh-internal"}, address)
	if err != nil {
		return nil, err
	}
	for name, content := range map[string]string{"ca.pem": issuer.Certificate, "crt.pem": server.Certificate, "key.pem": server.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	b.server = exec.Command(natsProgram, "--addr", address, "--port", strconv.Itoa(port), "--tlsverify", "--tlscert", "crt.pem",
		"--tlskey", "key.pem", "--tlscacert", "ca.pem")
	b.server.Dir = dir
	b.server.Stdout, b.server.Stderr = &b.log, &b.log
	if err := b.server.Start(); err != nil {
		return nil, fmt.Errorf("start message bus: %w", err)
	}
	if err := b.connect(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func freePort(address string) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// connect connects as the director, and waits until the server responds.
func (b *Bus) connect(ctx context.Context) error {
	pair, err := b.issuer.Issue(pkix.Name{CommonName: "default.director.bosh-internal"})
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair([]byte(pair.Certificate), []byte(pair.Key))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(b.issuer.Certificate))
	connected := make(chan struct{})
	b.conn, err = nats.Connect(b.URL, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ConnectHandler(func(*nats.Conn) { close(connected) }),
		nats.Secure(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}))
	if err != nil {
		return fmt.Errorf("connect to message bus: %w", err)
	}
	select {
	case <-connected:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("connect to message bus: %w; its log:\n%s", ctx.Err(), b.log.String())
	}
}

// Close closes the connection and stops the server.
func (b *Bus) Close() {
	if b.conn != nil {
		b.conn.Close()
	}
	_ = b.server.Process.Kill()
	_ = b.server.Wait()
}

// AgentEnv returns the env of create_vm for an agent on this bus. Agents require a common name below nats.bosh-internal for their bus
// (mbus/nats_handler.go of bosh-agent).
func (b *Bus) AgentEnv() (map[string]any, error) {
	return agentEnv(b.issuer, "agent.agent.bosh-internal")
}

// Agent returns the agent with this ID.
func (b *Bus) Agent(id string) BusAgent { return BusAgent{bus: b, id: id} }

// Listen returns the messages on a subject, for example "hm.agent.heartbeat.*", until stop is called.
func (b *Bus) Listen(subject string) (messages <-chan *nats.Msg, stop func(), err error) {
	channel := make(chan *nats.Msg, 1000)
	subscription, err := b.conn.ChanSubscribe(subject, channel)
	if err != nil {
		return nil, nil, err
	}
	return channel, func() { _ = subscription.Unsubscribe() }, b.conn.Flush()
}

// BusAgent is an agent called through a Bus.
type BusAgent struct {
	bus *Bus
	id  string
}

// protocolVersion is the version of the messages. Version 3 supports updates of settings.
const protocolVersion = 3

// responseTimeout is the director's timeout for most requests.
const responseTimeout = 45 * time.Second

// pollInterval is the interval for polling the agent's tasks, because the agent does not notify.
const pollInterval = 100 * time.Millisecond

// Call sends a request and returns the value of the response. It waits for a long-running task.
func (a BusAgent) Call(ctx context.Context, method string, arguments ...any) (json.RawMessage, error) {
	value, err := a.send(ctx, method, arguments)
	for err == nil {
		var task struct {
			ID    string `json:"agent_task_id"`
			State string `json:"state"`
		}
		isTask := json.Unmarshal(value, &task) == nil && task.ID != "" && task.State == "running"
		if !isTask {
			return value, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("agent's %s: %w", method, ctx.Err())
		case <-time.After(pollInterval):
		}
		value, err = a.send(ctx, "get_task", []any{task.ID})
	}
	return nil, err
}

func (a BusAgent) send(ctx context.Context, method string, arguments []any) (json.RawMessage, error) {
	if arguments == nil {
		arguments = []any{}
	}
	inbox := fmt.Sprintf("director.%s.%s.%d", UUID, a.id, a.bus.requests.Add(1))
	request, err := json.Marshal(map[string]any{"protocol": protocolVersion, "method": method, "arguments": arguments, "reply_to": inbox})
	if err != nil {
		return nil, err
	}
	subscription, err := a.bus.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := a.bus.conn.Publish("agent."+a.id, request); err != nil {
		return nil, err
	}
	// An agent does not receive messages that were sent before it listened.
	waitCtx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	response, err := subscription.NextMsgWithContext(waitCtx)
	if err != nil {
		return nil, fmt.Errorf("agent's %s: %w", method, err)
	}
	return decodeAgentResponse(method, response.Data)
}
