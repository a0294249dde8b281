package stemcell

// Prefetch configures which nodes pull a stemcell's image when the stemcell is uploaded.
type Prefetch struct {
	Enabled bool `json:"enabled"`
	// NodeSelector selects nodes by label. The default is all nodes that can run the image.
	NodeSelector map[string]string `json:"node_selector"`
	// Tolerations select nodes with taints.
	Tolerations []Toleration `json:"tolerations"`
}

// Toleration is a Kubernetes toleration: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/. This package does
// not import the Kubernetes API.
type Toleration struct {
	Key               string `json:"key"`
	Operator          string `json:"operator"`
	Value             string `json:"value"`
	Effect            string `json:"effect"`
	TolerationSeconds *int64 `json:"tolerationSeconds"`
}
