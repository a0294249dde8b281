package stemcells

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1" // part of BOSH's stemcell format
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
)

// Rootfs describes the parts of a root filesystem that the CPI reads.
type Rootfs struct {
	AgentConfig string // content of agent.json; if empty, the file does not exist
	Init        string // path of the init program, without its leading slash
	ELFMachine  byte   // e_machine of the agent's ELF header; 62 is x86-64, 183 is AArch64
	Filler      int    // number of incompressible bytes
}

// Jammy is a stemcell with runit. Noble is a stemcell with systemd.
var (
	Jammy = Rootfs{AgentConfig: WardenAgentConfig, Init: "usr/sbin/runsvdir-start", ELFMachine: 62, Filler: 1 << 20}
	Noble = Rootfs{AgentConfig: WardenAgentConfig, Init: "usr/sbin/init", ELFMachine: 62, Filler: 1 << 20}
)

// WardenAgentConfig is the agent.json of a warden stemcell.
const WardenAgentConfig = `{
  "Platform": {"Linux": {"UseDefaultTmpDir": true, "UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": true, "SkipDiskSetup": true, "ServiceManager": "systemd"}},
  "Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}]}}
}`

// Tar returns the filesystem as an archive.
func (r Rootfs) Tar() []byte {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	add := func(header tar.Header, content []byte) {
		header.Size = int64(len(content))
		must(writer.WriteHeader(&header))
		_, err := writer.Write(content)
		must(err)
	}
	for _, directory := range []string{"./", "./usr/", "./usr/sbin/", "./var/", "./var/vcap/", "./var/vcap/bosh/", "./var/vcap/bosh/bin/"} {
		add(tar.Header{Name: directory, Typeflag: tar.TypeDir, Mode: 0o750, Gid: 1000}, nil)
	}
	if r.Init != "" {
		add(tar.Header{Name: "./" + r.Init, Typeflag: tar.TypeReg, Mode: 0o755}, []byte("#!/bin/bash\n"))
	}
	if r.AgentConfig != "" {
		add(tar.Header{Name: "./var/vcap/bosh/agent.json", Typeflag: tar.TypeReg, Mode: 0o640}, []byte(r.AgentConfig))
	}
	if r.ELFMachine != 0 {
		elf := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
		elf[18] = r.ELFMachine
		add(tar.Header{Name: "./var/vcap/bosh/bin/bosh-agent", Typeflag: tar.TypeReg, Mode: 0o755}, elf)
	}
	filler := make([]byte, r.Filler)
	source := rand.NewChaCha8([32]byte{})
	_, err := source.Read(filler)
	must(err)
	add(tar.Header{Name: "./filler", Typeflag: tar.TypeReg, Mode: 0o644}, filler)
	must(writer.Close())
	return archive.Bytes()
}

// Image returns the filesystem as a stemcell's image, which is a gzipped archive.
func (r Rootfs) Image() []byte { return gzipped(r.Tar()) }

// Tarball writes a stemcell tarball with this image for `bosh upload-stemcell`. overrides replaces fields of the manifest; an empty
// value removes the field.
func Tarball(path string, image []byte, overrides map[string]string) {
	sum := sha1.Sum(image) // see above
	fields := map[string]string{
		"name": "bosh-warden-boshlite-ubuntu-jammy-go_agent", "version": "'1.10'", "api_version": "3", "bosh_protocol": "'1'",
		"sha1": hex.EncodeToString(sum[:]), "operating_system": "ubuntu-jammy", "stemcell_formats": "[warden-tar, general-tar]",
		"cloud_properties": "{name: bosh-warden-boshlite-ubuntu-jammy-go_agent, version: '1.10', infrastructure: warden, architecture: x86_64}",
	}
	maps.Copy(fields, overrides)
	var manifest strings.Builder
	for field, value := range fields {
		if value != "" {
			fmt.Fprintf(&manifest, "%s: %s\n", field, value)
		}
	}
	file, err := os.Create(path)
	must(err)
	zipped, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	must(err)
	writer := tar.NewWriter(zipped)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"stemcell.MF", []byte(manifest.String())}, {"packages.txt", []byte("bash\n")}, {"image", image}} {
		must(writer.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.content))}))
		_, err := writer.Write(part.content)
		must(err)
	}
	must(writer.Close())
	must(zipped.Close())
	must(file.Close())
}

// AddFile adds a file to the image, for example to make the image unique. The image is a gzipped archive, and a gzip file can have
// several members: https://www.rfc-editor.org/rfc/rfc1952#section-2.2
func AddFile(image []byte, name, content string) []byte {
	return append(gzipped(TarFile(name, content)), image...)
}

// TarFile returns an archive of one file, without the end-of-archive marker.
func TarFile(name, content string) []byte {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	must(writer.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}))
	_, err := writer.Write([]byte(content))
	must(err)
	must(writer.Flush())
	return archive.Bytes()
}

func gzipped(content []byte) []byte {
	var zipped bytes.Buffer
	writer, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	must(err)
	_, err = writer.Write(content)
	must(err)
	must(writer.Close())
	return zipped.Bytes()
}

// must panics on err. Errors do not occur in memory and in a test's temporary directory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
