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

// installedFile is one of the files that Install writes.
type installedFile struct {
	path    string
	mode    fs.FileMode
	content func() (io.ReadSeeker, error)
}

// files returns the files in the order in which Install writes them: the network configuration comes after the plugin and the
// kubeconfig that it references. The node's token is renewed when the remaining fraction of its lifetime is at most minRemaining.
func (o Options) files(ctx context.Context, minRemaining float64) []installedFile {
	fromBytes := func(build func() ([]byte, error)) func() (io.ReadSeeker, error) {
		return func() (io.ReadSeeker, error) {
			content, err := build()
			return bytes.NewReader(content), err
		}
	}
	return []installedFile{
		{o.binaryPath(), 0o755, func() (io.ReadSeeker, error) { return os.Open(o.Program) }},
		{o.kubeconfigPath(), 0o600, fromBytes(func() ([]byte, error) { return o.renderKubeconfig(ctx, minRemaining) })},
		{o.configPath(), 0o644, fromBytes(func() ([]byte, error) {
			original, err := o.findOriginalNetwork()
			if err != nil {
				return nil, err
			}
			return o.renderNetwork(original)
		})},
	}
}

func (s installedFile) withContent(use func(io.ReadSeeker) (bool, error)) (bool, error) {
	content, err := s.content()
	if err != nil {
		return false, err
	}
	if file, is := content.(io.Closer); is {
		defer file.Close()
	}
	return use(content)
}

// Install installs or updates the shim, and returns the paths of the changed files. If it fails, the files that it has written
// remain: their order makes each intermediate state valid.
func (o Options) Install(ctx context.Context) ([]string, error) { return o.install(ctx, 0.5) }

func (o Options) install(ctx context.Context, minRemaining float64) ([]string, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var changed []string
	for _, file := range o.files(ctx, minRemaining) {
		written, err := file.withContent(func(content io.ReadSeeker) (bool, error) { return writeFile(file.path, file.mode, content) })
		if err != nil {
			return changed, err
		}
		if written {
			changed = append(changed, file.path)
		}
	}
	return changed, nil
}

// Verify returns an error if a file is missing or differs from what Install writes.
func (o Options) Verify(ctx context.Context) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.TokenFor != "" && remainingLifetime(o.installedToken(), time.Now()) == 0 {
		return fmt.Errorf("%s is missing, or its token has expired", o.kubeconfigPath())
	}
	for _, file := range o.files(ctx, 0) {
		same, err := file.withContent(func(content io.ReadSeeker) (bool, error) { return fileMatches(file.path, file.mode, content) })
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("%s is missing or outdated", file.path)
		}
	}
	return nil
}

// Uninstall removes the shim's files in reverse order, which makes the node's own network configuration the first one again. It never
// removes a network configuration that is not the shim's.
func (o Options) Uninstall() error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.removeConfig(); err != nil {
		return err
	}
	if err := remove(o.kubeconfigPath()); err != nil {
		return err
	}
	return errors.Join(remove(o.binaryPath()), removeTemporaryFiles(o.ConfigDir), removeTemporaryFiles(o.BinaryDir))
}

func (o Options) removeConfig() error {
	raw, err := os.ReadFile(o.configPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the shim's network configuration: %w", err)
	}
	var network struct {
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(raw, &network); err != nil || len(network.Plugins) == 0 || network.Plugins[0].Type != PluginType {
		return fmt.Errorf("cannot remove %s: it is not the shim's network configuration, although it has its name", o.configPath())
	}
	return remove(o.configPath())
}

// Watch installs the shim, and repeats that at each interval until the context is canceled: to renew the token, to follow changes of
// the node's network configuration, and to restore files that were removed. It does not uninstall at its end: the shim keeps working
// during an upgrade of the installer. Watch logs a failure once until it changes, and retries.
func (o Options) Watch(ctx context.Context, interval time.Duration, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := errors.Join(removeTemporaryFiles(o.ConfigDir), removeTemporaryFiles(o.BinaryDir)); err != nil {
		return err
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var lastMessage string
	minRemaining := 1.0 // renews an existing token: its service account may have been recreated
	for {
		changed, err := o.install(ctx, minRemaining)
		if slices.Contains(changed, o.kubeconfigPath()) {
			minRemaining = 0.5
		}
		for _, path := range changed {
			log.Info("installed", "file", path)
		}
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != lastMessage && message != "" {
			log.Error("installation incomplete", "error", message)
		}
		lastMessage = message
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
