package director

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// Authority issues the certificates of a director's message bus and blobstore.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// PEM is the authority's certificate.
	PEM string
}

// KeyPair is a certificate and its key, as PEM.
type KeyPair struct{ Certificate, Key string }

// NewAuthority creates an authority. Its certificates expire after a day.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificateTemplate("director's authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key, PEM: encodePEM("CERTIFICATE", raw)}, nil
}

// Issue issues a certificate with this common name, for clients and for servers at these addresses. Agents require a common name below
// nats.bosh-internal for their bus (mbus/nats_handler.go of bosh-agent).
func (a *Authority) Issue(name string, addresses ...string) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	template := certificateTemplate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return KeyPair{}, err
	}
	rawKey, err := x509.MarshalECPrivateKey(key)
	return KeyPair{Certificate: encodePEM("CERTIFICATE", raw), Key: encodePEM("EC PRIVATE KEY", rawKey)}, err
}

func certificateTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func encodePEM(blockType string, raw []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: raw}))
}
