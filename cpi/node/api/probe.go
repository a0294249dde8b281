package api

import (
	"errors"
	"net"
)

// NodeProbe reports what a node provides for a VM. It runs like a VM.
type NodeProbe struct {
	Service string // NAME:PORT of a Service with the probe's Pod as its only endpoint
}

// Command returns the arguments of the command, after the path of the program.
func (p NodeProbe) Command() []string { return []string{"node", "probe", "--service", p.Service} }

// ParseNodeProbe parses the arguments after "node probe".
func ParseNodeProbe(arguments []string) (p NodeProbe, err error) {
	flags := newFlags()
	flags.StringVar(&p.Service, "service", "", "")
	if err := parse(flags, arguments); err != nil {
		return p, err
	}
	if _, _, err := net.SplitHostPort(p.Service); err != nil {
		return p, errors.New("--service is not NAME:PORT")
	}
	return p, nil
}
