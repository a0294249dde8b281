package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// rolesLoadTimeout is how long a new API server that forbids even /readyz may take to load its roles.
const rolesLoadTimeout = 5 * time.Second

// isAPIServerForbidden reports whether the API server, and not a proxy in front of it, forbids the request.
func isAPIServerForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.IsUnexpectedServerError(err)
}

// startupCheck returns a function that checks with /readyz whether the API server is starting up. A new server forbids requests
// until its roles are loaded. That can include requests for /readyz: while these are forbidden, the function returns true until
// rolesLoadTimeout after since, the time of the first forbidden request.
func startupCheck(client rest.Interface) func(context.Context, time.Time) bool {
	return func(ctx context.Context, since time.Time) bool {
		err := client.Get().AbsPath("/readyz").Do(ctx).Error()
		var response apierrors.APIStatus
		switch {
		case !errors.As(err, &response):
			return isTransportError(err)
		case response.Status().Code == http.StatusForbidden:
			return time.Since(since) < rolesLoadTimeout
		}
		return response.Status().Code >= http.StatusInternalServerError
	}
}
