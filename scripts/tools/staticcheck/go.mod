module bosh-kubernetes-cpi/tools/staticcheck

go 1.26.0

require honnef.co/go/tools v0.8.2
