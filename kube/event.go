package kube

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Component is the name under which the CPI sends requests and leaves events.
const Component = "bosh-kubernetes-cpi"

// recordTimeout bounds all that is done to leave an event.
const recordTimeout = time.Second

// Reference names the object, as events about it do.
func (r *Resource[T, L]) Reference(object T) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: r.group.String(), Kind: r.kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
}

// RecordEvent leaves the event, or gives up within a second. It is one request when nothing goes wrong, and when it is refused.
func (c *Client) RecordEvent(ctx context.Context, event *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	policy := c.Events.retryPolicy
	policy.timeout, policy.isStarting = recordTimeout, nil
	_, err := retry(ctx, policy, func(ctx context.Context) (*corev1.Event, error) { return c.Events.create(ctx, event) })
	err = c.Events.translate(c.Events.action("create", event.Name), err)
	if errors.Is(err, ErrExists) { // its answer was lost: nobody else has this name
		return nil
	}
	return err
}
