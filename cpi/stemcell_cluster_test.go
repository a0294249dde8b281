package cpi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// stemcellCluster answers what the stemcell calls ask of a cluster, and counts.
type stemcellCluster struct {
	*httptest.Server
	mutex    sync.Mutex
	pods     []corev1.Pod
	secrets  map[string]*corev1.Secret
	requests []string
	created  *corev1.Pod
}

func newStemcellCluster() *stemcellCluster {
	server := &stemcellCluster{secrets: map[string]*corev1.Secret{}}
	server.Server = httptest.NewServer(server)
	DeferCleanup(server.Close)
	return server
}

func (s *stemcellCluster) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.requests = append(s.requests, request.Method+" "+request.URL.Path)
	if name, ok := strings.CutPrefix(request.URL.Path, "/api/v1/namespaces/bosh/secrets"); ok {
		s.serveSecret(w, request, strings.TrimPrefix(name, "/"))
		return
	}
	if request.Method == http.MethodPost {
		s.created = decoded[*corev1.Pod](request)
		reply(w, http.StatusUnprocessableEntity, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422, Message: "no"})
		return
	}
	reply(w, http.StatusOK, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: s.pods})
}

func (s *stemcellCluster) serveSecret(w http.ResponseWriter, request *http.Request, name string) {
	secret := s.secrets[name]
	switch request.Method {
	case http.MethodPost:
		secret = decoded[*corev1.Secret](request)
		s.secrets[secret.Name] = secret
	case http.MethodPatch:
		var patch struct {
			Data map[string][]byte `json:"data"`
		}
		Expect(json.NewDecoder(request.Body).Decode(&patch)).To(Succeed())
		maps.Copy(secret.Data, patch.Data)
	}
	if secret == nil {
		reply(w, http.StatusNotFound, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404})
		return
	}
	copied := secret.DeepCopy()
	copied.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	reply(w, http.StatusOK, copied)
}

// decoded is the object that a request brings.
func decoded[T runtime.Object](request *http.Request) T {
	raw, err := io.ReadAll(request.Body)
	Expect(err).NotTo(HaveOccurred())
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	return object.(T)
}

func reply(w http.ResponseWriter, status int, object any) {
	if failure, ok := object.(metav1.Status); ok {
		failure.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		object = failure
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object)
}

func (s *stemcellCluster) seen() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string{}, s.requests...)
}

func (s *stemcellCluster) kubeconfig() string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"bosh"}}]}`, s.URL)
}
