package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A VM node takes minutes to unpack an image. Therefore, its third disk contains the image store of its container runtime, which
// containerd on the host fills.

// imageStoreConfig is the configuration of a containerd that only manages images.
const imageStoreConfig = `version = 3
root = "%[1]s/containerd"
state = "%[2]s"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "%[3]s"
`

// createImageStore creates the disk, with the images that every node has, and with test stemcells.
func (n *VMNode) createImageStore(ctx context.Context, archives string) error {
	store, socket, config := n.file("store"), n.file("store.sock"), n.file("store.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, imageStoreConfig, store, n.file("store-state"), socket), 0o644); err != nil {
		return err
	}
	containerd := Process{Name: "store", Dir: n.Dir, Args: []string{"containerd", "--config", config, "--log-level", "warn"}}
	if err := containerd.Start(); err != nil {
		return err
	}
	ctr := func(args ...string) error {
		_, err := Run(ctx, "ctr", append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
		return err
	}
	err := WaitUntil(ctx, time.Minute, "the image store's containerd", func(context.Context) (bool, error) { return true, ctr("version") })
	if err == nil {
		err = n.importStoreImages(ctx, archives, ctr)
	}
	if stopErr := containerd.Stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return fmt.Errorf("%w; last lines of its log:\n%s", err, containerd.LastLines())
	}
	if _, err := Run(ctx, "mke2fs", "-q", "-t", "ext4", "-d", store, n.file("store.img"), "16G"); err != nil {
		return err
	}
	return os.RemoveAll(store)
}

func (n *VMNode) importStoreImages(ctx context.Context, archives string, ctr func(args ...string) error) error {
	files, err := filepath.Glob(filepath.Join(archives, "*.tar"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := ctr("images", "import", file); err != nil {
			return err
		}
	}
	images, err := stemcellImages(ctx)
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := ctr("images", "pull", "--plain-http", image); err != nil {
			return err
		}
	}
	return nil
}

// stemcellImages returns the images of test stemcells in the cluster's registry by digest, as Pods refer to them.
func stemcellImages(ctx context.Context) ([]string, error) {
	repository, err := name.NewRepository(fmt.Sprintf("127.0.0.1:%d/stemcell", registryPort), name.Insecure)
	if err != nil {
		return nil, err
	}
	tags, err := remote.List(repository, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var images []string
	for _, tag := range tags {
		descriptor, err := remote.Head(repository.Tag(tag), remote.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		images = append(images, repository.Digest(descriptor.Digest.String()).Name())
	}
	return images, nil
}
