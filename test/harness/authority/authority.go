// Package authority issues certificates for tests.
package authority

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

// Authority issues certificates that are valid for ten years.
type Authority struct {
	KeyPair

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// KeyPair is a certificate and its key, as PEM.
type KeyPair struct{ Certificate, Key string }

// New creates an authority.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key, certificate: newTemplate(pkix.Name{CommonName: "bosh-kubernetes-cpi-test"})}
	a.certificate.IsCA, a.certificate.BasicConstraintsValid = true, true
	a.certificate.KeyUsage |= x509.KeyUsageCertSign
	if a.KeyPair, err = a.sign(a.certificate, key); err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(a.Certificate))
	a.certificate, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// Issue issues a certificate with this subject, for clients, and for servers at these addresses and names.
func (a *Authority) Issue(subject pkix.Name, hosts ...string) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	template := newTemplate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(template, key)
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (KeyPair, error) {
	certificate, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return KeyPair{}, err
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	return KeyPair{Certificate: encodePEM("CERTIFICATE", certificate), Key: encodePEM("PRIVATE KEY", rawKey)}, err
}

func newTemplate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
	}
}

func encodePEM(kind string, content []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
}
