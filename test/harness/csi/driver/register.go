package driver

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar registers the driver with the node's kubelet. The kubelet watches for sockets in its directory plugins_registry; see
// k8s.io/kubelet/pkg/apis/pluginregistration/v1.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	log            *slog.Logger
}

// Register serves the driver's registration to the kubelet until the context is canceled. endpoint is the driver's socket.
func (d *Driver) Register(ctx context.Context, kubelet, endpoint string) error {
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{name: d.options.Name, endpoint: endpoint, log: d.options.Log})
	return serve(ctx, server, filepath.Join(kubelet, "plugins_registry", d.options.Name+"-reg.sock"))
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{version}}, nil
}

func (r registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.log.Info("registration by the kubelet", "registered", status.GetPluginRegistered(), "error", status.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}
