package stemcell

// Prefetch says whether, and which, nodes pull a stemcell's image as soon as it is uploaded.
type Prefetch struct {
	Enabled bool `json:"enabled"`
	// NodeSelector are labels of the nodes that pull; all that can run the image do without any.
	NodeSelector map[string]string `json:"node_selector"`
	// Tolerations are for taints of nodes that are to pull.
	Tolerations []Toleration `json:"tolerations"`
}

// Toleration is Kubernetes' own, with its keys:
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/. This package knows nothing of the cluster.
type Toleration struct {
	Key               string `json:"key"`
	Operator          string `json:"operator"`
	Value             string `json:"value"`
	Effect            string `json:"effect"`
	TolerationSeconds *int64 `json:"tolerationSeconds"`
}
