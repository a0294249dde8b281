package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"
)

// step is one file of the shim's.
type step struct {
	path    string
	mode    fs.FileMode
	content func() (io.ReadSeeker, error)
}

// steps are the shim's files in the order in which they are put: a network that names a plugin or a
// kubeconfig comes after them. The node's token stays while more than this part of its life is left.
func (o Options) steps(ctx context.Context, enough float64) []step {
	made := func(build func() ([]byte, error)) func() (io.ReadSeeker, error) {
		return func() (io.ReadSeeker, error) {
			content, err := build()
			return bytes.NewReader(content), err
		}
	}
	return []step{
		{o.binary(), 0o755, func() (io.ReadSeeker, error) { return os.Open(o.Program) }},
		{o.kubeconfig(), 0o600, made(func() ([]byte, error) { return o.credentials(ctx, enough) })},
		{o.config(), 0o644, made(func() ([]byte, error) {
			original, err := o.original()
			if err != nil {
				return nil, err
			}
			return o.wrapped(original)
		})},
	}
}

func (s step) each(with func(io.ReadSeeker) (bool, error)) (bool, error) {
	content, err := s.content()
	if err != nil {
		return false, err
	}
	if file, is := content.(io.Closer); is {
		defer file.Close()
	}
	return with(content)
}

// Install puts the shim on the node, or brings what is there up to date, and returns the files that
// it changed. What it has put stays when a later step fails: the order makes every state a good one.
func (o Options) Install(ctx context.Context) ([]string, error) { return o.install(ctx, 0.5) }

func (o Options) install(ctx context.Context, enough float64) ([]string, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var changed []string
	for _, step := range o.steps(ctx, enough) {
		wrote, err := step.each(func(content io.ReadSeeker) (bool, error) { return put(step.path, step.mode, content) })
		if err != nil {
			return changed, err
		}
		if wrote {
			changed = append(changed, step.path)
		}
	}
	return changed, nil
}

// Verify returns an error when what is there is not, or not any more, what Install puts.
func (o Options) Verify(ctx context.Context) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.TokenFor != "" && left(o.installedToken(), time.Now()) == 0 {
		return fmt.Errorf("%s is not there, or its token is over", o.kubeconfig())
	}
	for _, step := range o.steps(ctx, 0) {
		same, err := step.each(func(content io.ReadSeeker) (bool, error) { return holds(step.path, step.mode, content) })
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("%s is not there or not up to date", step.path)
		}
	}
	return nil
}

// Uninstall takes the shim's files away in the reverse order; the node's own network, which was there
// all the time, is the first again. It never removes a network that is not the shim's.
func (o Options) Uninstall() error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.removeConfig(); err != nil {
		return err
	}
	if err := remove(o.kubeconfig()); err != nil {
		return err
	}
	return errors.Join(remove(o.binary()), sweep(o.ConfigDir), sweep(o.BinaryDir))
}

func (o Options) removeConfig() error {
	raw, err := os.ReadFile(o.config())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the shim's network: %w", err)
	}
	var network struct {
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(raw, &network); err != nil || len(network.Plugins) == 0 || network.Plugins[0].Type != PluginType {
		return fmt.Errorf("%s is not the shim's network although it has its name: it was left alone", o.config())
	}
	return remove(o.config())
}

// Watch installs, and goes on to follow changes until the context ends: a token that is to be renewed, a
// network that the cluster's own plugin wrote again, a file that someone removed. It leaves everything
// in place, so that an upgrade finds the shim at work. A failure is logged when it is new, and tried
// again.
func (o Options) Watch(ctx context.Context, interval time.Duration, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := errors.Join(sweep(o.ConfigDir), sweep(o.BinaryDir)); err != nil {
		return err
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last string
	enough := 1.0 // a token that is there already may be of a service account that was made anew since
	for {
		changed, err := o.install(ctx, enough)
		if slices.Contains(changed, o.kubeconfig()) {
			enough = 0.5
		}
		for _, path := range changed {
			log.Info("installed", "file", path)
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != last && said != "" {
			log.Error("the shim is not (fully) installed", "error", said)
		}
		last = said
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
