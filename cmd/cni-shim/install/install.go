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

	"k8s.io/apimachinery/pkg/util/wait"
)

// installedFile is a file written by Install.
type installedFile struct {
	path    string
	mode    fs.FileMode
	content func() (io.ReadSeeker, error)
}

// files returns the files in the order in which Install writes them. The network configuration is last, because it references the
// plugin and the kubeconfig. The node's token is renewed if the remaining fraction of its lifetime is at most minRemaining.
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

func (f installedFile) withContent(use func(io.ReadSeeker) (bool, error)) (bool, error) {
	content, err := f.content()
	if err != nil {
		return false, err
	}
	if closer, ok := content.(io.Closer); ok {
		defer closer.Close()
	}
	return use(content)
}

// renewBelow is the remaining fraction of a token's lifetime below which Install renews the token.
const renewBelow = 0.5

// Install installs or updates the shim, and returns the paths of the changed files. If it fails, it keeps the files already written:
// their order makes each intermediate state valid.
func (o Options) Install(ctx context.Context) ([]string, error) { return o.install(ctx, renewBelow) }

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

// Verify returns an error if a file does not exist or differs from what Install writes.
func (o Options) Verify(ctx context.Context) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.TokenFor != "" && remainingLifetime(o.installedToken(), time.Now()) == 0 {
		return fmt.Errorf("%s does not exist, or its token is expired; run cni-shim install", o.kubeconfigPath())
	}
	for _, file := range o.files(ctx, 0) {
		matches, err := file.withContent(func(content io.ReadSeeker) (bool, error) { return fileMatches(file.path, file.mode, content) })
		if err != nil {
			return err
		}
		if !matches {
			return fmt.Errorf("%s does not exist or is outdated; run cni-shim install", file.path)
		}
	}
	return nil
}

// Uninstall removes the shim's files in reverse order: removing the network configuration first reactivates the node's own. It never
// removes a network configuration that is not the shim's.
func (o Options) Uninstall() error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.removeConfig(); err != nil {
		return err
	}
	if err := removeIfExists(o.kubeconfigPath()); err != nil {
		return err
	}
	return errors.Join(removeIfExists(o.binaryPath()), removeTemporaryFiles(o.ConfigDir), removeTemporaryFiles(o.BinaryDir))
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
		return fmt.Errorf("cannot remove %s: despite its name, it is not the shim's network configuration", o.configPath())
	}
	return removeIfExists(o.configPath())
}

// Watch installs the shim, and reinstalls it at each interval until the context is canceled. Reinstalling renews the token, applies
// changes to the node's network configuration, and restores removed files. Watch does not uninstall the shim when it returns, so that
// the shim keeps working during an upgrade of the installer. After a failure, Watch retries. It logs a repeated failure only once.
func (o Options) Watch(ctx context.Context, interval time.Duration, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := errors.Join(removeTemporaryFiles(o.ConfigDir), removeTemporaryFiles(o.BinaryDir)); err != nil {
		return err
	}
	var lastErr error
	minRemaining := 1.0 // renews an existing token, in case its service account was recreated
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		changed, err := o.install(ctx, minRemaining)
		if slices.Contains(changed, o.kubeconfigPath()) {
			minRemaining = renewBelow
		}
		for _, path := range changed {
			log.Info("installed", "file", path)
		}
		if err != nil && (lastErr == nil || err.Error() != lastErr.Error()) {
			log.Error("installation incomplete", "error", err.Error())
		}
		lastErr = err
	}, interval)
	return nil
}
