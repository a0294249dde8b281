package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
)

// proxyStartTimeout limits the start of the proxy in the background, and its stop.
const proxyStartTimeout = 30 * time.Second

// ensureBackgroundProxy returns the URL of the proxy of the environment directory. If none runs, it starts one for the director's
// namespace, with kubectl's flags of this command. The proxy inherits a lock, and holds it while it runs: so there is one per directory.
func ensureBackgroundProxy(command *cobra.Command, conn *connection, dir environment.Dir, namespace string) (url string, err error) {
	if user := conn.overrides.AuthInfo; cmp.Or(user.Token, user.Username, user.Password) != "" {
		return "", errors.New("--token, --username and --password require --no-proxy, because the proxy in the background does not have them; " +
			"set credentials in the kubeconfig")
	}
	_, config, err := conn.newNamespacedClient(namespace)
	if err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir.ProxyLockPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(command.Context(), proxyStartTimeout)
	defer cancel()
	for {
		locked, err := environment.TryLock(lock)
		if err != nil {
			return "", err
		}
		if locked {
			if err := dir.WriteProxy(environment.Proxy{}); err != nil { // of an earlier proxy: another process may have its ID now
				return "", err
			}
			if _, _, err := newEnvironmentRun(command, conn, runOptions{}, dir, namespace); err != nil {
				return "", err // for example for another cluster
			}
			return startBackgroundProxy(ctx, conn, dir, namespace, lock)
		}
		running, err := readLocalProxy(dir)
		if err != nil {
			return "", err
		}
		if running.PID != 0 && running.Connection != connectionChecksum(config) {
			// An outdated proxy keeps running if the current settings are of another cluster.
			if _, _, err := newEnvironmentRun(command, conn, runOptions{}, dir, namespace); err != nil {
				return "", err
			}
			if err := stopBackgroundProxy(ctx, dir); err != nil {
				return "", err
			}
			continue
		}
		if running.PID != 0 && accepts(ctx, running.URL) {
			return running.URL, nil
		}
		if err := pause(ctx); err != nil { // another command is starting it
			return "", fmt.Errorf("the proxy of directory %s does not start: %w; see %s", dir.Path, err, dir.ProxyLogPath())
		}
	}
}

// connectionChecksum returns a checksum of the API server's URL, its CA, and the credentials in the kubeconfig, which a running process
// does not read again, unlike a file.
func connectionChecksum(config *rest.Config) string {
	token, plugin := cmp.Or(config.BearerTokenFile, config.BearerToken), ""
	if exec := config.ExecProvider; exec != nil {
		plugin = fmt.Sprintf("%q %q %q", exec.Command, exec.Args, exec.Env)
	}
	settings := fmt.Sprintf("%q %q", []string{
		config.Host, config.ServerName, string(config.CAData), config.CAFile, token, config.Username, config.Password,
		string(config.CertData), config.CertFile, string(config.KeyData), config.KeyFile, plugin,
		config.Impersonate.UserName, config.Impersonate.UID,
	}, config.Impersonate.Groups)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(settings)))
}

// readLocalProxy returns the recorded proxy. It fails if the proxy is one of another host, which shares the directory.
func readLocalProxy(dir environment.Dir) (environment.Proxy, error) {
	running, err := dir.ReadProxy()
	if err != nil {
		return running, err
	}
	if host, err := os.Hostname(); err != nil || running.PID != 0 && running.Host != host {
		return running, errors.Join(fmt.Errorf("the proxy of directory %s runs on host %s; run `kubectl bosh env --stop` there first, "+
			"or if that is an earlier name of this host, end process %d", dir.Path, running.Host, running.PID), err)
	}
	return running, nil
}

// accepts reports whether a proxy accepts connections at the URL.
func accepts(ctx context.Context, url string) bool {
	client, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "socks5://"))
	return err == nil && client.Close() == nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// startBackgroundProxy starts `kubectl bosh proxy` in a session of its own, and returns its URL, which the proxy records.
func startBackgroundProxy(ctx context.Context, conn *connection, dir environment.Dir, namespace string, lock *os.File) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	output, err := os.OpenFile(dir.ProxyLogPath(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	defer output.Close()
	arguments := append([]string{"proxy", "--direct", "--background", dir.Path, "--namespace", namespace}, conn.kubectlFlags()...)
	process := exec.Command(program, arguments...) //nolint:gosec,noctx // this program; the process outlives this one
	process.Stdout, process.Stderr, process.ExtraFiles = output, output, []*os.File{lock}
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := process.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	for {
		hasEnded := len(ended) > 0 // before its record is read
		running, err := dir.ReadProxy()
		if err != nil || running.PID != 0 {
			return running.URL, err
		}
		if hasEnded {
			content, err := os.ReadFile(dir.ProxyLogPath())
			return "", errors.Join(fmt.Errorf("the proxy failed: %s", strings.TrimSpace(string(content))), err)
		}
		if err := pause(ctx); err != nil {
			return "", errors.Join(fmt.Errorf("the proxy did not start: %w; see %s", err, dir.ProxyLogPath()), process.Process.Kill())
		}
	}
}

// stopBackgroundProxy stops the proxy of the environment directory, if one runs, and waits for it.
func stopBackgroundProxy(ctx context.Context, dir environment.Dir) error {
	lock, err := os.OpenFile(dir.ProxyLockPath(), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(ctx, proxyStartTimeout)
	defer cancel()
	for signaled := false; ; {
		locked, err := environment.TryLock(lock)
		if err != nil {
			return err
		}
		if locked {
			return dir.WriteProxy(environment.Proxy{})
		}
		running, err := readLocalProxy(dir)
		if err != nil {
			return err
		}
		if running.PID != 0 && !signaled {
			if err := syscall.Kill(running.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			signaled = true
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("the proxy of directory %s does not stop: %w; stop the process that has %s open", dir.Path, err, dir.ProxyLockPath())
		}
	}
}
