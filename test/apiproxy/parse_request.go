package apiproxy

import (
	"net/http"
	"regexp"
	"strings"
)

// pathPrefixPattern is what comes before the kind: /api/VERSION or /apis/GROUP/VERSION, and the namespace of what belongs to one.
var pathPrefixPattern = regexp.MustCompile(`^/(?:api/[^/]+|apis/[^/]+/[^/]+)/(?:namespaces/[^/]+/)?`)

// ParseRequest tells a request's verb as Kubernetes has it, its kind with the subresource, and whether it is about one object.
func ParseRequest(request *http.Request) (verb, kind string, named bool) {
	parts := strings.Split(strings.Trim(pathPrefixPattern.ReplaceAllString(request.URL.Path, ""), "/"), "/")
	kind, named = parts[0], len(parts) > 1
	if len(parts) > 2 {
		kind += "/" + parts[2]
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
	return verb, kind, named
}
