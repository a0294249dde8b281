package kube

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Component is the CPI's name as a user agent, and as the source of events.
const Component = "bosh-kubernetes-cpi"

// recordTimeout bounds RecordEvent, including repeated requests.
const recordTimeout = time.Second

// Reference returns a reference to the object, as events about it contain it.
func (r *Resource[T, L]) Reference(object T) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: r.group.String(), Kind: r.kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
}

// RecordEvent creates the event, or gives up after a second. It repeats the request only while the API server cannot be reached.
func (c *Client) RecordEvent(ctx context.Context, event *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	policy := c.Events.retryPolicy
	policy.timeout, policy.isStarting = recordTimeout, nil
	_, err := retry(ctx, policy, func(ctx context.Context) (*corev1.Event, error) { return c.Events.create(ctx, event) })
	err = c.Events.translate(c.Events.action("create", event.Name), err)
	if errors.Is(err, ErrExists) { // the first answer was lost: no other call uses this name
		return nil
	}
	return err
}
