package kube

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Client accesses the objects of one namespace, and cluster-scoped objects. Use New to create one.
type Client struct {
	Pods     *Resource[*corev1.Pod, *corev1.PodList]
	Secrets  *Resource[*corev1.Secret, *corev1.SecretList]
	PVCs     *Resource[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
	Events   *Resource[*corev1.Event, *corev1.EventList]
	Services *Resource[*corev1.Service, *corev1.ServiceList]

	PodTemplates *Resource[*corev1.PodTemplate, *corev1.PodTemplateList]

	// PVs and Nodes are cluster-scoped.
	PVs   *Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList]
	Nodes *Resource[*corev1.Node, *corev1.NodeList]

	// Namespace is the namespace of all namespaced objects.
	Namespace string

	component   string // see New; "" if unknown
	config      *rest.Config
	http        *http.Client
	clock       *serverClock // see ServerTime
	retryPolicy retryPolicy
}

// New returns a client, without sending a request. The client retries each request for up to retryTimeout while the API server is
// unreachable. New fails if the options select no usable kubeconfig or service account.
//
// component is the name of the program. It is the user agent of requests, and the source of the program's events.
//
// New registers few kinds: the scheme of the full clientset costs every process 18 MiB and 10 ms, and all kinds of core/v1 would
// cost a short-lived process 4 % of its CPU time.
func New(options Options, component string, retryTimeout time.Duration) (*Client, error) {
	config, namespace, err := options.restConfig(component)
	if err != nil {
		return nil, err
	}
	config.UserAgent = component
	if options.OnWarning != nil {
		config.WarningHandler = warnings(options.OnWarning)
	}
	client, err := NewForConfig(config, namespace, retryTimeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.kubeconfigName(), err)
	}
	client.component = component
	return client, nil
}

// dialTimeout limits an attempt to connect. It is shorter than client-go's 30 seconds, because TCP sends the packets of one attempt at
// growing intervals: a new attempt notices sooner that the network is back. It leaves time to ask a second name server after 5 seconds.
const dialTimeout = 10 * time.Second

// NewForConfig is like New, but takes connection settings.
func NewForConfig(config *rest.Config, namespace string, retryTimeout time.Duration) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the server throttles requests by API Priority and Fairness
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if err := errors.Join(checkProxy(config), checkClientCertificate(config)); err != nil {
		return nil, err
	}
	clock := &serverClock{}
	config.Wrap(markUnsent)
	config.Wrap(clock.observe)
	withToken := rest.CopyConfig(config)
	rereadRejectedToken(withToken)
	httpClient, err := rest.HTTPClientFor(withToken)
	if err != nil {
		return nil, explainConnection(config, err)
	}
	client := &Client{
		Namespace:   namespace,
		config:      config,
		http:        httpClient,
		clock:       clock,
		retryPolicy: retryPolicy{timeout: retryTimeout, autoRenewed: hasAutoRenewal(config)},
	}
	conn := client.connect("/api", corev1.SchemeGroupVersion, addCoreKinds)
	if err := conn.retryPolicy.err; err != nil {
		return nil, explainConnection(config, err)
	}
	client.Pods = newResource[corev1.Pod, corev1.PodList](conn, "Pod", "pods")
	client.Secrets = newResource[corev1.Secret, corev1.SecretList](conn, "Secret", "secrets")
	client.PVCs = newResource[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](
		conn, "PersistentVolumeClaim", "persistentvolumeclaims")
	client.Events = newResource[corev1.Event, corev1.EventList](conn, "Event", "events")
	client.Services = newResource[corev1.Service, corev1.ServiceList](conn, "Service", "services")
	client.PodTemplates = newResource[corev1.PodTemplate, corev1.PodTemplateList](conn, "PodTemplate", "podtemplates")
	conn.namespace = ""
	client.PVs = newResource[corev1.PersistentVolume, corev1.PersistentVolumeList](conn, "PersistentVolume", "persistentvolumes")
	client.Nodes = newResource[corev1.Node, corev1.NodeList](conn, "Node", "nodes")
	return client, nil
}

// addCoreKinds registers the kinds of the Client's fields, and their request options.
func addCoreKinds(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.PodLogOptions{}, &corev1.Secret{}, &corev1.SecretList{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.Event{}, &corev1.EventList{},
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.PodTemplate{}, &corev1.PodTemplateList{},
		&corev1.PersistentVolume{}, &corev1.PersistentVolumeList{}, &corev1.Node{}, &corev1.NodeList{})
	return nil
}

// PodDisruptionBudgets returns the namespace's PodDisruptionBudgets. Each call creates a REST client, because few programs need them.
func (c *Client) PodDisruptionBudgets() *Resource[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList] {
	conn := c.connect("/apis", policyv1.SchemeGroupVersion, policyv1.AddToScheme)
	return newResource[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](conn, "PodDisruptionBudget", "poddisruptionbudgets")
}

// connect returns a connection for the kinds of one API group, which uses protobuf and strategic merge patches.
func (c *Client) connect(path string, group schema.GroupVersion, register func(*runtime.Scheme) error) connection {
	return c.connectWith(runtime.ContentTypeProtobuf, path, group, register)
}

// connectWith returns a connection for the kinds of one API group. With JSON, it uses JSON merge patches. If it fails, all requests of the
// connection fail with its error.
func (c *Client) connectWith(contentType, path string, group schema.GroupVersion, register func(*runtime.Scheme) error) connection {
	scheme := runtime.NewScheme()
	err := register(scheme)
	metav1.AddToGroupVersion(scheme, group)
	config := rest.CopyConfig(c.config)
	config.APIPath, config.GroupVersion = path, &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	conn := connection{codec: runtime.NewParameterCodec(scheme), namespace: c.Namespace, group: group,
		patches: types.MergePatchType, config: c.config, retryPolicy: c.retryPolicy}
	if contentType == runtime.ContentTypeProtobuf {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		conn.patches = types.StrategicMergePatchType
	}
	if err == nil {
		conn.client, err = rest.RESTClientForConfigAndClient(config, c.http)
	}
	conn.retryPolicy.isStarting, conn.retryPolicy.err = startupCheck(conn.client), err
	return conn
}

type connection struct {
	client    rest.Interface
	codec     runtime.ParameterCodec
	namespace string
	group     schema.GroupVersion
	patches   types.PatchType
	accept    string // media type of responses; "" means the client's default

	config      *rest.Config // for messages about the credentials
	retryPolicy retryPolicy
}

// newResource returns the Resource of a kind with objects of type *T and lists of type *L.
func newResource[T, L any, P interface {
	*T
	Object
}, Q interface {
	*L
	runtime.Object
}](conn connection, kind, plural string) *Resource[P, Q] {
	return &Resource[P, Q]{kind: kind, requests: requests[P, Q]{
		connection: conn, plural: plural, newObject: func() P { return new(T) }, newList: func() Q { return new(L) },
	}}
}
