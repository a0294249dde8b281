package director

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"bosh-kubernetes-cpi/test/harness/authority"
)

// Agent is the BOSH agent of a VM, called over HTTPS as `bosh create-env` does.
type Agent struct {
	Address string
	// Password replaces AgentPassword if it is set.
	Password string
}

// AgentPassword is the default password in the mbus URL of agents.
const AgentPassword = "mbus-password"

// AgentMbus is the mbus URL of an agent that listens for HTTPS.
const AgentMbus = "https://mbus:" + AgentPassword + "@0.0.0.0:6868"

var agentClient = &http.Client{
	Timeout:   30 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// Call sends a request and returns the value of the response. It polls a long-running task with increasing pauses, because each request
// delays the task on a slow VM.
func (a Agent) Call(ctx context.Context, method string, arguments ...any) (json.RawMessage, error) {
	value, err := a.send(ctx, method, arguments)
	for pause := 100 * time.Millisecond; err == nil; pause = min(2*pause, 2*time.Second) {
		var task struct {
			ID    string `json:"agent_task_id"`
			State string `json:"state"`
		}
		if json.Unmarshal(value, &task) != nil || task.ID == "" || task.State != "running" {
			return value, nil //nolint:nilerr // any response other than a running task is the value
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("agent's %s: %w", method, ctx.Err())
		case <-time.After(pause): // the agent does not notify
		}
		value, err = a.send(ctx, "get_task", []any{task.ID})
	}
	return nil, err
}

func (a Agent) send(ctx context.Context, method string, arguments []any) (json.RawMessage, error) {
	if arguments == nil {
		arguments = []any{}
	}
	body, err := json.Marshal(map[string]any{"method": method, "arguments": arguments, "reply_to": "test"})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+net.JoinHostPort(a.Address, "6868")+"/agent", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth("mbus", cmp.Or(a.Password, AgentPassword))
	response, err := agentClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	value, err := decodeAgentResponse(method, raw)
	if err != nil && response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	return value, err
}

// decodeAgentResponse decodes an agent's response.
func decodeAgentResponse(method string, raw []byte) (json.RawMessage, error) {
	var response struct {
		Value     json.RawMessage `json:"value"`
		Exception *struct {
			Message string `json:"message"`
		} `json:"exception"`
	}
	if err := json.Unmarshal(raw, &response); err != nil {
		return nil, fmt.Errorf("agent's %s: %w: %s", method, err, raw)
	}
	if response.Exception != nil {
		return nil, fmt.Errorf("agent's %s: %s", method, response.Exception.Message)
	}
	return response.Value, nil
}

// AgentEnv returns the env of create_vm for an agent that listens for HTTPS.
func AgentEnv() (map[string]any, error) {
	issuer, err := authority.New()
	if err != nil {
		return nil, err
	}
	return agentEnv(issuer, "agent")
}

// agentEnv returns the env of create_vm for an agent with a certificate with this common name.
func agentEnv(issuer *authority.Authority, name string) (map[string]any, error) {
	pair, err := issuer.Issue(pkix.Name{CommonName: name})
	return map[string]any{"bosh": map[string]any{
		"password": "*",
		"mbus":     map[string]any{"cert": map[string]any{"ca": issuer.Certificate, "certificate": pair.Certificate, "private_key": pair.Key}},
	}}, err
}
