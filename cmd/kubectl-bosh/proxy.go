package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/proxy"
	"bosh-kubernetes-cpi/kube"
)

// proxyOptions are the flags of `kubectl bosh proxy`.
type proxyOptions struct {
	port   uint16
	direct bool
	wait   time.Duration
}

// machineWait is how long a connection waits for a machine that is not up, unless the operator says otherwise.
const machineWait = 20 * time.Second

func newProxyCommand(connection *connection) *cobra.Command {
	var options proxyOptions
	command := &cobra.Command{
		Use:   "proxy [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Reach machines and their Services through the API server, by SOCKS5",
		Long: `A SOCKS5 proxy on this machine's loopback interface. What is dialed through it is looked for among the machines of the
namespace and the Services that they are behind, and goes there through the API server's port-forward.

With a COMMAND, that is run with BOSH_ALL_PROXY set, and its exit status becomes this one's.`,
		Example: `  kubectl bosh proxy -n bosh -- bosh create-env bosh.yml --state state.json
  kubectl bosh proxy -n bosh --port 1080`,
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return fmt.Errorf("%q is no flag: write -- before the command to run", args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return serveProxy(command, connection, options, args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.Uint16Var(&options.port, "port", 0, "Port to listen on; any free one by default")
	flags.BoolVar(&options.direct, "direct", false,
		"Dial addresses that are no machine's and no Service's from here (as when the BOSH CLI fetches releases); without it, they are refused")
	flags.DurationVar(&options.wait, "wait", machineWait, "How long to wait for a machine that is not up, as while it is made anew")
	return command
}

func serveProxy(command *cobra.Command, connection *connection, options proxyOptions, run []string) error {
	client, config, err := connection.open()
	if err != nil {
		return err
	}
	server, log := newServer(command, client, config, options)
	ctx := command.Context()
	if err := server.Check(ctx); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(options.port))))
	if err != nil {
		return err
	}
	if len(run) > 0 {
		return runThrough(ctx, server, listener, run)
	}
	fmt.Fprintf(command.OutOrStdout(), "export BOSH_ALL_PROXY=%s\n", urlOf(listener))
	log.say("leads to the machines of namespace " + client.Namespace + " until it is interrupted")
	return server.Serve(ctx, listener)
}

func newServer(command *cobra.Command, client *kube.Client, config *rest.Config, options proxyOptions) (*proxy.Server, *log) {
	log := &log{to: command.ErrOrStderr()}
	server := proxy.New(client, config)
	server.Direct, server.Say, server.Finder.Wait = options.direct, log.say, options.wait
	return server, log
}

func urlOf(listener net.Listener) string { return "socks5://" + listener.Addr().String() }

// runThrough runs the command with BOSH_ALL_PROXY set, and serves until it has ended.
func runThrough(ctx context.Context, server *proxy.Server, listener net.Listener, run []string) error {
	// The command hears of signals, and ends by itself; until then it needs the proxy.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	err := runWith(serving, run, "BOSH_ALL_PROXY="+urlOf(listener))
	stop()
	if failed := <-served; err == nil {
		return failed
	}
	return err
}

// log writes lines with the time. A client that tries again and again would fill it: the same line comes once a minute.
type log struct {
	to    io.Writer
	mutex sync.Mutex
	said  map[string]time.Time
}

func (l *log) say(line string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	if now.Sub(l.said[line]) < time.Minute {
		return
	}
	if l.said == nil || len(l.said) > 1000 {
		l.said = map[string]time.Time{}
	}
	l.said[line] = now
	fmt.Fprintf(l.to, "%s kubectl bosh proxy: %s\n", now.Format(time.TimeOnly), line)
}
