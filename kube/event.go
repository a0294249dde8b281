package kube

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// recordTimeout limits the duration of RecordEvent, including retries.
const recordTimeout = time.Second

// Reference returns a reference to the object for an event.
func (r *Resource[T, L]) Reference(object T) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: r.group.String(), Kind: r.kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
}

// RecordEvent creates the event. It retries only while the API server is unreachable, and gives up after a second.
func (c *Client) RecordEvent(ctx context.Context, event *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	policy := c.Events.retryPolicy
	policy.timeout, policy.isStarting = recordTimeout, nil
	_, err := retry(ctx, policy, func(ctx context.Context) (*corev1.Event, error) { return c.Events.create(ctx, event) })
	err = c.Events.translate(c.Events.action("create", event.Name), err)
	if errors.Is(err, ErrExists) { // names are unique: an earlier attempt created the event, but its response was lost
		return nil
	}
	return err
}
