// Pins the build of govulncheck, which lint runs where Go's database of vulnerabilities can be reached; scripts/build-tools builds it.
module bosh-kubernetes-cpi/tools/govulncheck

go 1.26.0

require golang.org/x/vuln v1.9.0
