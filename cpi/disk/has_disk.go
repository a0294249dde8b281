package disk

import (
	"errors"

	"bosh-kubernetes-cpi/kube"
)

// Has reports whether the disk exists.
func (s *Session) Has(cid string) (bool, error) {
	pvc, err := s.read(cid)
	if errors.Is(err, kube.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return exists(pvc), nil
}
