package apiproxy

import (
	"net/http"
	"regexp"
	"strings"
)

// pathPrefixPattern matches the path before the resource: /api/VERSION or /apis/GROUP/VERSION, and the namespace if there is one.
var pathPrefixPattern = regexp.MustCompile(`^/(?:api/[^/]+|apis/[^/]+/[^/]+)/(?:namespaces/[^/]+/)?`)

// ParseRequest returns the Kubernetes verb of a request, its resource with any subresource, and whether it names an object.
func ParseRequest(request *http.Request) (verb, resource string, named bool) {
	parts := strings.Split(strings.Trim(pathPrefixPattern.ReplaceAllString(request.URL.Path, ""), "/"), "/")
	resource, named = parts[0], len(parts) > 1
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb = strings.ToLower(request.Method)
	switch {
	case isWatch(request):
		verb = "watch"
	case verb == "post":
		verb = "create"
	case verb == "put":
		verb = "update"
	case verb == "get" && !named:
		verb = "list"
	}
	return verb, resource, named
}
