package kube

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Permission is one verb on one resource, as in an RBAC rule.
type Permission struct {
	Group         string // "" is the core group
	Resource      string // may include a subresource, such as pods/ephemeralcontainers
	Verb          string
	Name          string // the object's name; "" means all objects
	ClusterScoped bool
}

func (r Permission) String() string { return r.Verb + " " + r.Resource }

// Reviewer checks which permissions the client has.
type Reviewer struct{ conn connection }

// Reviewer returns a Reviewer for the client's namespace. It needs no permissions: every authenticated user may create
// SelfSubjectAccessReviews (ClusterRole system:basic-user).
func (c *Client) Reviewer() *Reviewer {
	return &Reviewer{c.connect("/apis", authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme)}
}

// IsAllowed reports whether the client has this permission. It sends one SelfSubjectAccessReview.
func (r *Reviewer) IsAllowed(ctx context.Context, permission Permission) (bool, error) {
	resource, subresource, _ := strings.Cut(permission.Resource, "/")
	attributes := &authorizationv1.ResourceAttributes{
		Verb: permission.Verb, Group: permission.Group, Resource: resource, Subresource: subresource, Namespace: r.conn.namespace,
		Name: permission.Name,
	}
	if permission.ClusterScoped {
		attributes.Namespace = ""
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	response, err := retry(ctx, r.conn.retryPolicy, func(ctx context.Context) (*authorizationv1.SelfSubjectAccessReview, error) {
		result := &authorizationv1.SelfSubjectAccessReview{}
		return result, r.conn.client.Post().Resource("selfsubjectaccessreviews").Body(review).Do(ctx).Into(result)
	})
	return err == nil && response.Status.Allowed, r.conn.translate("check permission to "+permission.String(), err)
}

// CurrentUser returns the name of the user to which the API server maps the client's credentials. It needs no permissions: every
// authenticated user may create SelfSubjectReviews (ClusterRole system:basic-user).
func (c *Client) CurrentUser(ctx context.Context) (string, error) {
	conn := c.connect("/apis", authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme)
	response, err := retry(ctx, conn.retryPolicy, func(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
		result := &authenticationv1.SelfSubjectReview{}
		return result, conn.client.Post().Resource("selfsubjectreviews").Body(&authenticationv1.SelfSubjectReview{}).Do(ctx).Into(result)
	})
	if err != nil {
		return "", conn.translate("get the name of the current user", err)
	}
	return response.Status.UserInfo.Username, nil
}
