package cpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// Config is the content of cpi.json, documented in docs/configuration.md.
type Config struct {
	Kubernetes kube.Options          `json:"kubernetes"`
	Agent      agentsettings.Options `json:"agent"`
	Network    NetworkOptions        `json:"network"`
	Stemcell   stemcell.Options      `json:"stemcell"`
	Timeouts   Timeouts              `json:"timeouts"`
	Log        LogOptions            `json:"log"`
}

// Timeouts bound how long a call may take, as Go durations ("90s", "10m"). A call that ends for lack
// of time says what it was waiting for.
type Timeouts struct {
	// Request is how long one request is repeated while the API server cannot be reached.
	Request metav1.Duration `json:"request"`
	// CreateStemcell covers pushing a heavy stemcell's image to the registry.
	CreateStemcell metav1.Duration `json:"create_stemcell"`
	// CreateVM covers scheduling, pulling the image and booting.
	CreateVM metav1.Duration `json:"create_vm"`
	// Unschedulable is how long of that a machine may wait for a node that takes it, as one that an
	// autoscaler brings; as long as the call when not given, and not at all when 0.
	Unschedulable *metav1.Duration `json:"unschedulable"`
	// DeleteVM covers stopping the machine and releasing its disks.
	DeleteVM metav1.Duration `json:"delete_vm"`
	// AttachDisk covers provisioning the volume at its first use.
	AttachDisk metav1.Duration `json:"attach_disk"`
	// DetachDisk covers proving the device free and releasing it.
	DetachDisk metav1.Duration `json:"detach_disk"`
	// UpdateDisk covers copying a disk's data to a new one.
	UpdateDisk metav1.Duration `json:"update_disk"`
	// Other bounds every other call.
	Other metav1.Duration `json:"other"`
}

// LogOptions say how much is written to stderr, which the director keeps in the task's CPI log.
type LogOptions struct {
	// Level is debug, info, warn or error. At debug, requests and responses are logged too, without
	// what is secret in them.
	Level string `json:"level"`
}

// DefaultConfig is what holds for keys that cpi.json leaves out.
func DefaultConfig() Config {
	duration := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	return Config{
		Network: DefaultNetworkOptions(),
		Timeouts: Timeouts{
			Request:        duration(kube.DefaultPatience),
			CreateStemcell: duration(30 * time.Minute),
			CreateVM:       duration(15 * time.Minute),
			DeleteVM:       duration(10 * time.Minute),
			AttachDisk:     duration(10 * time.Minute),
			DetachDisk:     duration(5 * time.Minute),
			UpdateDisk:     duration(2 * time.Hour),
			Other:          duration(5 * time.Minute),
		},
		Log: LogOptions{Level: "info"},
	}
}

// LoadConfig reads and checks cpi.json.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("the CPI's configuration cannot be read (give its path with -configPath): %w", err)
	}
	config := DefaultConfig()
	var given overrides
	if json.Unmarshal(raw, &given) == nil { // what is wrong with it is told below
		config.forget(given)
	}
	if err := decodeStrict(path, raw, &config); err != nil {
		return Config{}, err
	}
	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Validate checks the whole configuration before anything is done with it.
func (c Config) Validate() error {
	for _, check := range []func() error{c.Kubernetes.Validate, c.Agent.Validate, c.Network.Validate, c.Stemcell.Validate, c.Timeouts.Validate} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err := c.Log.level()
	return err
}

// Validate names the first timeout that is not positive.
func (t Timeouts) Validate() error {
	for key, value := range map[string]metav1.Duration{
		"request": t.Request, "create_stemcell": t.CreateStemcell, "create_vm": t.CreateVM, "delete_vm": t.DeleteVM,
		"attach_disk": t.AttachDisk, "detach_disk": t.DetachDisk, "update_disk": t.UpdateDisk, "other": t.Other,
	} {
		if value.Duration <= 0 {
			return fmt.Errorf("timeouts.%s must be longer than 0, for example \"5m\"", key)
		}
	}
	if t.Unschedulable != nil && t.Unschedulable.Duration < 0 {
		return errors.New("timeouts.unschedulable must not be below 0; \"0s\" does not wait at all")
	}
	return nil
}

// longest is the time after which no call is still at work.
func (t Timeouts) longest() time.Duration {
	return max(t.CreateStemcell.Duration, t.CreateVM.Duration, t.DeleteVM.Duration, t.AttachDisk.Duration, t.DetachDisk.Duration, t.UpdateDisk.Duration, t.Other.Duration)
}

// of answers how long the method may take.
func (t Timeouts) of(method string) time.Duration {
	switch method {
	case "create_stemcell":
		return t.CreateStemcell.Duration
	case "create_vm":
		return t.CreateVM.Duration
	case "delete_vm":
		return t.DeleteVM.Duration
	case "attach_disk":
		return t.AttachDisk.Duration
	case "detach_disk":
		return t.DetachDisk.Duration
	case "update_disk":
		return t.UpdateDisk.Duration
	}
	return t.Other.Duration
}

func (l LogOptions) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return level, fmt.Errorf("log.level %q is none of debug, info, warn, error", l.Level)
	}
	return level, nil
}

// overrides are the parts of cpi.json that a cpi-config may replace for the calls it applies to. The
// director merges a cpi-config's properties into the request's context at its top level, beside keys
// of its own, so that unknown keys there are not errors.
type overrides struct {
	Kubernetes json.RawMessage `json:"kubernetes"`
	Agent      json.RawMessage `json:"agent"`
	Network    json.RawMessage `json:"network"`
	Stemcell   json.RawMessage `json:"stemcell"`
	Timeouts   json.RawMessage `json:"timeouts"`
}

// with answers the configuration for a request with this context.
func (c Config) with(context json.RawMessage) (Config, error) {
	var given overrides
	if len(context) > 0 {
		if err := json.Unmarshal(context, &given); err != nil {
			return c, fmt.Errorf("the request's context is not a hash: %w", err)
		}
	}
	if given.Kubernetes != nil {
		c.Kubernetes = kube.Options{} // another cluster shares nothing with this one
	}
	if given.Stemcell != nil {
		c.Stemcell = stemcell.Options{} // nor does its registry
	}
	c.forget(given)
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		into any
	}{
		{"kubernetes", given.Kubernetes, &c.Kubernetes}, {"agent", given.Agent, &c.Agent},
		{"network", given.Network, &c.Network}, {"stemcell", given.Stemcell, &c.Stemcell}, {"timeouts", given.Timeouts, &c.Timeouts},
	} {
		if part.raw == nil {
			continue
		}
		if err := decodeStrict("the cpi-config's property "+part.name, part.raw, part.into); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
}

// forget clears what is given anew as a whole: decoding would fill in what it leaves out.
func (c *Config) forget(given overrides) {
	if gives(given.Agent, "blobstore") {
		c.Agent.Blobstore = agentsettings.Blobstore{}
	}
	if gives(given.Network, "address_annotations") {
		c.Network.AddressAnnotations = nil
	}
}

func gives(part json.RawMessage, key string) bool {
	var keys map[string]json.RawMessage
	return json.Unmarshal(part, &keys) == nil && keys[key] != nil
}
