package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// rolesLoadTimeout is how long a new API server may take to load its roles, if it forbids access to /readyz, too.
const rolesLoadTimeout = 5 * time.Second

// isAPIServerForbidden reports whether the API server itself forbids the request, and not a proxy in front of it.
func isAPIServerForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.IsUnexpectedServerError(err)
}

// startupCheck returns a function that asks the API server's /readyz whether the server has only just started. Until such a
// server has loaded its roles, it forbids requests that it allows a second later. Access to /readyz depends on roles, too: while
// it is forbidden, the function returns true until rolesLoadTimeout after since, the time of the first forbidden request.
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
