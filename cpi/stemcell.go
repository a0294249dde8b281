package cpi

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/stemcell"
)

func (c *call) stemcells() stemcell.Store {
	return stemcell.Store{Options: c.config.Stemcell, Log: c.log}
}

// createStemcell answers the reference of the image that a light stemcell names, or pushes a heavy
// one's. No request is sent to the cluster.
func (c *call) createStemcell(image string, properties apiv1.CloudPropsImpl) (string, error) {
	var named stemcell.Properties
	if err := json.Unmarshal(properties.RawMessage, &named); err != nil {
		return "", invalid("cloud_properties: %w", err)
	}
	if err := c.checkStemcellAPI(); err != nil {
		return "", err
	}
	if named.Light() {
		cid, err := c.stemcells().Pin(c.ctx, named)
		return cid, stemcellError(err)
	}
	if err := checkImage(image); err != nil {
		return "", err
	}
	cid, err := c.stemcells().Push(c.ctx, image, named, map[string]string{manifest.LabelDirector: c.director})
	return cid, stemcellError(err)
}

// checkImage refuses a stemcell that neither names an image nor brings one.
func checkImage(path string) error {
	found, err := os.Stat(path)
	switch {
	case err != nil:
		return invalid("the stemcell's image cannot be read, and its cloud_properties name none (image_reference): %w", err)
	case found.Size() == 0:
		return invalid("cloud_properties.image_reference is missing: the stemcell's image is empty, as in a light stemcell, but its cloud_properties name no container image (image_reference and digest, or image)")
	}
	return nil
}

// checkStemcellAPI refuses a stemcell whose agent cannot be told of disks while it runs.
func (c *call) checkStemcellAPI() error {
	if c.stemcellAPI == nil {
		return nil
	}
	return stemcellError(stemcell.CheckAPIVersion(*c.stemcellAPI))
}

// stemcellError gives an error of package stemcell its type.
func stemcellError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, stemcell.ErrNoRegistry):
		return typed(typeNotSupported, "this stemcell brings a root filesystem, and %w that it could be pushed to. "+
			"Either set stemcell.registry.repository (a repository that the CPI can push to and the nodes can pull from), "+
			"or use a light stemcell, whose cloud_properties name an image: scripts/build-stemcell makes one of this stemcell", err)
	case errors.Is(err, stemcell.ErrInvalid):
		return invalid("%w", err)
	case errors.Is(err, stemcell.ErrFull):
		return typed(typeNoDiskSpace, "%w", err)
	}
	return typed(typeCloudError, "%w", err)
}

// deleteStemcell removes the image that the CPI pushed, unless a VM uses it: its node may have to pull
// it again. A light stemcell's image is not the CPI's, and its registry is left alone.
func (c *call) deleteStemcell(cid apiv1.StemcellCID) (any, error) {
	if !stemcell.Heavy(cid.AsString()) {
		return nil, nil
	}
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	machines, err := cluster.Pods.List(c.ctx, kube.Selection{Labels: manifest.LabelRole + "=" + manifest.RoleVM})
	if err != nil {
		return nil, err
	}
	for _, pod := range machines.Items {
		if pod.Annotations[manifest.AnnotationStemcell] == cid.AsString() {
			return nil, typed(typeCloudError, "stemcell %s is in use by VM %s: delete or recreate that VM first", cid.AsString(), pod.Name)
		}
	}
	return nil, stemcellError(c.stemcells().Delete(c.ctx, cid.AsString()))
}

// bringPullSecret sees to it that the Secret with which nodes pull this image is there and holds what
// is configured now. Pods find it by its name, so that machines made before get new credentials, too.
func (c *call) bringPullSecret(cluster *kube.Client, image string) error {
	name, content, err := c.config.Stemcell.PullSecret(image)
	if err != nil || name == "" {
		return err
	}
	wanted := manifest.PullSecret(name, cluster.Namespace, c.director, content)
	for {
		present, err := cluster.Secrets.Get(c.ctx, name)
		switch {
		case errors.Is(err, kube.ErrNotFound):
		case err != nil:
			return err
		case present.Labels[manifest.LabelRole] != manifest.RolePullSecret:
			return invalid("stemcell.registry.pull_secret.name %s is the name of a Secret that the CPI did not make: choose another, or leave it out and name that Secret in the VMs' cloud_properties.image_pull_secrets", name)
		case maps.EqualFunc(present.Data, wanted.Data, bytes.Equal):
			return nil
		default:
			c.log.Info("replacing the pull Secret: the registry's credentials have changed", "secret", name)
			if err := cluster.Secrets.Delete(c.ctx, present); err != nil {
				return err
			}
		}
		if _, err := cluster.Secrets.Create(c.ctx, wanted); !errors.Is(err, kube.ErrExists) {
			return err
		}
	}
}
