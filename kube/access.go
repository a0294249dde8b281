package kube

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Right is one verb on one kind of object, in the terms of an RBAC rule.
type Right struct {
	Group         string // "" is the core group
	Resource      string // with its subresource, such as pods/ephemeralcontainers
	Verb          string
	Name          string // of one object; "" for all objects of the kind
	ClusterScoped bool   // the kind has no namespace
}

func (r Right) String() string { return r.Verb + " " + r.Resource }

// Reviewer asks the API server which rights the client has.
type Reviewer struct {
	via       connection
	namespace string
}

// Reviewer returns a Reviewer for the client's namespace. Every authenticated user may create its SelfSubjectAccessReviews
// (ClusterRole system:basic-user).
func (c *Client) Reviewer() (*Reviewer, error) {
	via, err := c.connect("/apis", authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme)
	return &Reviewer{via: via, namespace: c.Namespace}, err
}

// IsAllowed reports whether the client has this right. It sends one SelfSubjectAccessReview.
func (r *Reviewer) IsAllowed(ctx context.Context, right Right) (bool, error) {
	resource, subresource, _ := strings.Cut(right.Resource, "/")
	attributes := &authorizationv1.ResourceAttributes{
		Verb: right.Verb, Group: right.Group, Resource: resource, Subresource: subresource, Namespace: r.namespace,
		Name: right.Name,
	}
	if right.ClusterScoped {
		attributes.Namespace = ""
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	response, err := retry(ctx, r.via.retryPolicy, func(ctx context.Context) (*authorizationv1.SelfSubjectAccessReview, error) {
		got := &authorizationv1.SelfSubjectAccessReview{}
		return got, r.via.client.Post().Resource("selfsubjectaccessreviews").Body(review).Do(ctx).Into(got)
	})
	return err == nil && response.Status.Allowed, r.via.translate("ask for the right to "+right.String(), err)
}
