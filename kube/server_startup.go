package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// rolesLoadTimeout is how long an API server that has started may take to read its roles, where it does not tell when it has.
const rolesLoadTimeout = 5 * time.Second

// isAPIServerForbidden reports that the API server itself, and not a proxy before it, forbids the request.
func isAPIServerForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.IsUnexpectedServerError(err)
}

// startupCheck asks an API server, by way of the client, whether it has only started yet, and so refuses requests that it will
// allow a second later: it has not read its roles. Who may ask that is itself a matter of roles.
func startupCheck(client rest.Interface) func(context.Context, time.Time) bool {
	return func(ctx context.Context, since time.Time) bool {
		err := client.Get().AbsPath("/readyz").Do(ctx).Error()
		var answer apierrors.APIStatus
		switch {
		case !errors.As(err, &answer):
			return isTransport(err)
		case answer.Status().Code == http.StatusForbidden:
			return time.Since(since) < rolesLoadTimeout
		}
		return answer.Status().Code >= http.StatusInternalServerError
	}
}
