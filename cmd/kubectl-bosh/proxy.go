package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/proxy"
	"bosh-kubernetes-cpi/kube"
)

// proxyOptions are the flags of `kubectl bosh proxy`.
type proxyOptions struct {
	port   uint16
	direct bool
	wait   time.Duration

	// background is the environment directory of a proxy in the background, in which it records itself. Its process has a lock at
	// inheritedLockFD, which its own child processes must not inherit.
	background string
}

// defaultVMWait is how long a connection waits by default for a VM that is not running.
const defaultVMWait = 20 * time.Second

func newProxyCommand(conn *connection) *cobra.Command {
	var options proxyOptions
	command := &cobra.Command{
		Use:   "proxy [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Run a SOCKS5 proxy to VMs and Services",
		Long: `Run a SOCKS5 proxy on the local loopback interface. It connects clients to the VMs of a namespace by IP address, and to
the Services in front of them by IP address or DNS name. All connections use the API server's port forwarding, so they require no
network route to Pods. Nothing in the cluster is changed.

Without COMMAND, print the value of BOSH_ALL_PROXY for the BOSH CLI, and run until interrupted. With COMMAND, run it with
BOSH_ALL_PROXY set, and exit with its exit status. Connections that fail are then reported only if they fail for longer than --wait.`,
		Example: `  # Run one command through the proxy
  kubectl bosh proxy -n bosh --direct -- bosh create-env bosh.yml --state state.json

  # Serve the proxy at socks5://127.0.0.1:1080
  kubectl bosh proxy -n bosh --port 1080`,
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return fmt.Errorf("unexpected argument %q; put -- before the command to run", args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if !command.Flags().Changed("wait") {
				options.wait = defaultVMWait
			}
			return serveProxy(command, conn, options, args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.Uint16Var(&options.port, "port", 0, "Local `port` to listen on (default: any free port)")
	flags.BoolVar(&options.direct, "direct", false,
		"Connect directly to addresses that do not belong to a VM or Service, for example to let the BOSH CLI download releases "+
			"(default: refuse them)")
	flags.StringVar(&options.background, "background", "", "")
	_ = flags.MarkHidden("background") // for env
	flags.DurationVar(&options.wait, "wait", 0, "How long to wait for a VM that is not running, for example while it is recreated "+
		"(default: "+defaultVMWait.String()+")")
	return command
}

// inheritedLockFD is the first file descriptor after the standard ones.
const inheritedLockFD = 3

func serveProxy(command *cobra.Command, conn *connection, options proxyOptions, arguments []string) error {
	if options.background != "" {
		syscall.CloseOnExec(inheritedLockFD)
	}
	client, config, err := conn.newClient()
	if err != nil {
		return err
	}
	ctx := command.Context()
	server, listener, err := listenProxy(ctx, command.ErrOrStderr(), client, config, options)
	if err != nil {
		return err
	}
	if len(arguments) > 0 {
		return serveWhile(ctx, server, listener, func(ctx context.Context, proxy ...string) error {
			return runCommand(ctx, arguments, proxy...)
		})
	}
	if options.background != "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		running := environment.Proxy{Host: host, PID: os.Getpid(), URL: proxyURL(listener), Connection: connectionChecksum(config)}
		if err := (environment.Dir{Path: options.background}).WriteProxy(running); err != nil {
			return err
		}
	}
	fmt.Fprintf(command.OutOrStdout(), "export BOSH_ALL_PROXY=%s\n", proxyURL(listener))
	server.Log("serving the VMs and Services of namespace " + client.Namespace + " until interrupted")
	return server.Serve(ctx, listener)
}

// listenProxy returns a proxy and its listener, after a check that the user may list VMs.
func listenProxy(ctx context.Context, log io.Writer, client *kube.Client, config *rest.Config, options proxyOptions,
) (*proxy.Server, net.Listener, error) {
	server := proxy.New(client, config)
	server.Direct, server.Log, server.Finder.Wait = options.direct, (&proxyLog{to: log}).print, options.wait
	if err := server.Check(ctx); err != nil {
		return nil, nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(options.port)))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("--port %d is in use; omit it, or choose another: %w", options.port, err)
	}
	return server, listener, err
}

func proxyURL(listener net.Listener) string { return "socks5://" + listener.Addr().String() }

// serveWhile serves the proxy while do runs commands with this environment variable.
func serveWhile(
	ctx context.Context, server *proxy.Server, listener net.Listener, do func(ctx context.Context, proxy ...string) error,
) error {
	server.Grace = server.Finder.Wait
	// The commands receive signals themselves, and need the proxy until they exit.
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(serveCtx, listener) }()
	err := do(serveCtx, "BOSH_ALL_PROXY="+proxyURL(listener))
	stop()
	if serveErr := <-served; err == nil {
		return serveErr
	}
	return err
}
