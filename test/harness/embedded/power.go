package embedded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// PowerOff kills the node like a power cut. No program shuts down cleanly, and all kernel state is lost: processes, mounts, network
// interfaces and loop devices.
func (n *Node) PowerOff(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(n.file("containerd-state")); err != nil { // in /run on a normal host
		return err
	}
	return n.detachNodeLoops(ctx)
}

// PowerOn boots the node again, and waits until it is ready. With kubeletFirst, the kubelet starts before the container runtime.
func (n *Node) PowerOn(ctx context.Context, kubeletFirst bool) error {
	if err := n.startNamespaces(ctx); err != nil {
		return err
	}
	if kubeletFirst {
		if err := n.Kubelet().Start(); err != nil {
			return err
		}
	}
	if err := n.StartContainerd(ctx); err != nil {
		return err
	}
	if err := n.CSIDriver().Start(); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx); err != nil {
		return err
	}
	return n.startKubeProxy(ctx)
}

// detachNodeLoops detaches the node's loop devices, and waits until the kernel releases them.
func (n *Node) detachNodeLoops(ctx context.Context) error {
	return WaitUntil(ctx, 30*time.Second, n.Name+"'s loop devices to be detached", func(ctx context.Context) (bool, error) {
		loops, err := n.LoopDevices(ctx)
		if err != nil {
			return false, err
		}
		for _, loop := range loops {
			if _, err := Run(ctx, "losetup", "--detach", loop); err != nil {
				return false, err
			}
		}
		return len(loops) == 0, nil
	})
}

// LoopDevices returns the loop devices of the node's volumes, in the order in which they can be detached.
func (n *Node) LoopDevices(ctx context.Context) ([]string, error) {
	images, err := n.volumeFiles(ctx)
	if err != nil {
		return nil, err
	}
	var loopDevices []string
	for _, image := range images {
		loops, err := loopsOf(ctx, image)
		if err != nil {
			return nil, err
		}
		loopDevices = append(loopDevices, loops...)
	}
	return loopDevices, nil
}

// volumeFiles returns the backing files of the node's volumes: the volumes of the default StorageClass, and the attached CSI volumes.
func (n *Node) volumeFiles(ctx context.Context) ([]string, error) {
	images, err := filepath.Glob(filepath.Join(n.volumes(), "*", "disk.img"))
	if err != nil {
		return nil, err
	}
	attached, err := n.csiVolumeFiles(ctx)
	return append(images, attached...), err
}

// loopsOf returns the file's loop devices, each preceded by the loop devices that depend on it. Such a device is backed by a file on
// its filesystem, or by the device itself: the kubelet creates the latter kind to keep a Block volume in use.
func loopsOf(ctx context.Context, file string) ([]string, error) {
	var loopDevices []string
	loops, err := Run(ctx, "losetup", "--list", "--noheadings", "--output", "NAME", "--associated", file)
	if err != nil {
		return nil, err
	}
	for loop := range strings.FieldsSeq(loops) {
		loopsOnFS, err := loopsOnFilesystem(ctx, loop)
		if err != nil {
			return nil, err
		}
		loopsOnDevice, err := loopsOf(ctx, loop)
		if err != nil {
			return nil, err
		}
		loopDevices = append(append(append(loopDevices, loopsOnFS...), loopsOnDevice...), loop)
	}
	return loopDevices, nil
}

// loopsOnFilesystem returns the loop devices that are backed by files on this device's filesystem.
func loopsOnFilesystem(ctx context.Context, loop string) ([]string, error) {
	list, err := Run(ctx, "losetup", "--list", "--noheadings", "--output", "NAME,MAJ:MIN,BACK-MAJ:MIN")
	if err != nil {
		return nil, err
	}
	numbers, loopsByBacking := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		name, number, backing := fields[0], fields[1], fields[2]
		numbers[name] = number
		loopsByBacking[backing] = append(loopsByBacking[backing], name)
	}
	return loopsByBacking[numbers[loop]], nil
}
