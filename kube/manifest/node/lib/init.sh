# The stemcell's init program, and what it needs of a container.

# find_init [PROGRAM]: the one that was asked for, or the stemcell's.
find_init() {
  if [[ -n ${1:-} ]]; then
    echo "$1"
  elif [[ -x $root/usr/sbin/runsvdir-start ]]; then
    echo "$root/usr/sbin/runsvdir-start"
  else
    echo "$root/sbin/init"
  fi
}

# prepare_systemd: a /run that is empty, and no units that would work on the node's devices, consoles and
# kernel instead of the machine's.
prepare_systemd() {
  local unit servers domains
  servers=$(awk '$1 == "nameserver" { printf "%s ", $2 }' "$root/etc/resolv.conf")
  domains=$(awk '$1 == "search" { $1 = ""; print }' "$root/etc/resolv.conf")
  empty_run
  mkdir -p "$root/run/systemd/system" "$root/run/systemd/resolved.conf.d"
  for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
    systemd-udev-trigger.service systemd-udev-settle.service systemd-modules-load.service \
    systemd-sysctl.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    sys-kernel-debug.mount sys-kernel-tracing.mount getty.target console-getty.service; do
    ln -s /dev/null "$root/run/systemd/system/$unit"
  done
  # The cluster's name servers serve until the agent is told of others.
  if [[ $(readlink "$root/etc/resolv.conf") == *systemd/resolve* ]]; then
    printf '[Resolve]\nFallbackDNS=%s\nDomains=%s\n' "$servers" "$domains" >"$root/run/systemd/resolved.conf.d/kubernetes.conf"
  fi
}

empty_run() {
  local new
  new=$(mktemp -d)
  mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$new"
  put_over "$new" "$root/run"
}

is_systemd() { [[ $(readlink -f "$1") == */systemd ]]; }

# start INIT
start() {
  export container=kubernetes
  if is_systemd "$1"; then
    prepare_systemd
    # As systemd leaves it on a machine, but not in a container: a disk that is unmounted is unmounted in
    # the mount namespaces of all services too.
    mount --make-rshared "$root/"
  fi
  become "$1"
}
