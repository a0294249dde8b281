// Package director calls the CPI as the BOSH director does: one process per call, with a JSON document as input and output.
package director

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
)

// UUID is the director's UUID.
const UUID = "71a22008-8304-4b12-988e-c12e3f3c92d9"

// Director calls a CPI program with a configuration.
type Director struct {
	// CPI is the path of the CPI's program, Config the path of its cpi.json.
	CPI, Config string
	wrapper     []string
	onStart     func(*os.Process)
}

// WithWrapper returns a copy of the director that runs the CPI through another program, such as nice: its path and arguments.
func (d *Director) WithWrapper(program ...string) *Director {
	copied := *d
	copied.wrapper = program
	return &copied
}

// Killable returns a copy of the director, and a function that sends a signal to the process of the copy's latest call.
func (d *Director) Killable() (killable *Director, sendSignal func(os.Signal) error) {
	var mutex sync.Mutex
	var process *os.Process
	copied := *d
	copied.onStart = func(started *os.Process) {
		mutex.Lock()
		defer mutex.Unlock()
		process = started
	}
	return &copied, func(signal os.Signal) error {
		mutex.Lock()
		defer mutex.Unlock()
		if process == nil {
			return os.ErrProcessDone // no call started
		}
		return process.Signal(signal)
	}
}

// Response is the response of the CPI.
type Response struct {
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
	Log    *string         `json:"log"`

	// Stderr is the standard error of the process.
	Stderr string `json:"-"`
}

// Error is the error in a response.
type Error struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	OkToRetry bool   `json:"ok_to_retry"`
}

func (e *Error) Error() string { return e.Type + ": " + e.Message }

// Text returns the result if it is a string, otherwise "".
func (r Response) Text() string {
	var result string
	_ = json.Unmarshal(r.Result, &result)
	return result
}

// Call makes a call and returns the response. The returned error is about the process, for example if it was killed. An error of the CPI
// is in the response.
func (d *Director) Call(ctx context.Context, method string, arguments ...any) (Response, error) {
	if arguments == nil {
		arguments = []any{}
	}
	request, err := json.Marshal(map[string]any{
		"method": method, "arguments": arguments, "api_version": 2,
		"context": map[string]any{"director_uuid": UUID, "request_id": "cpi-1"},
	})
	if err != nil {
		return Response{}, err
	}
	return d.CallRaw(ctx, request)
}

// CallRaw is like Call, but sends request as is.
func (d *Director) CallRaw(ctx context.Context, request []byte) (Response, error) {
	argv := slices.Concat(d.wrapper, []string{d.CPI, "-configPath", d.Config})
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")} // the director clears other variables
	command.Stdin = bytes.NewReader(request)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		return Response{}, err
	}
	if d.onStart != nil {
		d.onStart(command.Process)
	}
	if err := command.Wait(); err != nil {
		return Response{Stderr: stderr.String()}, fmt.Errorf("CPI process: %w: %s", err, stderr.String())
	}
	response := Response{Stderr: stderr.String()}
	decoder := json.NewDecoder(&stdout)
	if err := decoder.Decode(&response); err != nil {
		return response, fmt.Errorf("stdout is not a JSON document: %w", err)
	}
	if decoder.More() || response.Log == nil {
		return response, fmt.Errorf("stdout is not exactly one complete response: %s", stdout.String())
	}
	return response, nil
}

// NodeImage is the image of bosh-node in the configuration, for clusters that do not run it.
const NodeImage = "programs.example.com/bosh-node@sha256:7509e5bda0c762d2bac7f90d758b5b2263fa01ccbc542ab5e3df163be08e6ca9"

// WriteConfig writes a cpi.json that uses this kubeconfig file. settings are keys of the section kubernetes, and agent.
func WriteConfig(path, kubeconfig, namespace string, settings map[string]any) error {
	kubernetes := map[string]any{"kubeconfig_path": kubeconfig, "namespace": namespace, "node_image": NodeImage}
	var agent any = map[string]any{"mbus": "nats://nats:password@10.0.0.6:4222"}
	for key, value := range settings {
		if key == "agent" {
			agent = value
		} else {
			kubernetes[key] = value
		}
	}
	content, err := json.Marshal(map[string]any{"kubernetes": kubernetes, "agent": agent})
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
