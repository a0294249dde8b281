package stemcell

// Prefetch configures which nodes pull the image of a stemcell when the stemcell is uploaded.
type Prefetch struct {
	Enabled bool `json:"enabled"`
	// NodeSelector selects nodes by label. By default all nodes that can run the image pull it.
	NodeSelector map[string]string `json:"node_selector"`
	// Tolerations select nodes with taints.
	Tolerations []Toleration `json:"tolerations"`
}

// Toleration is a toleration with the keys that it has in Kubernetes:
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/. This package does not import the Kubernetes API.
type Toleration struct {
	Key               string `json:"key"`
	Operator          string `json:"operator"`
	Value             string `json:"value"`
	Effect            string `json:"effect"`
	TolerationSeconds *int64 `json:"tolerationSeconds"`
}
