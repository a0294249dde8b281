package disk

import "bosh-kubernetes-cpi/kube"

// Has reports whether the disk exists.
func (s *Session) Has(cid string) (bool, error) {
	pvc, err := s.read(cid)
	return err == nil && exists(pvc), kube.IgnoreNotFound(err)
}
