# The stemcell's init program, and its requirements.

# find_init [PROGRAM] prints the path of the init program (default: the stemcell's).
find_init() {
  if [[ -n ${1:-} ]]; then
    echo "$1"
  elif [[ -x $root/usr/sbin/runsvdir-start ]]; then
    echo "$root/usr/sbin/runsvdir-start"
  else
    echo "$root/sbin/init"
  fi
}

# prepare_systemd mounts an empty /run, and masks units that would affect the node's devices, consoles and kernel.
prepare_systemd() {
  local unit servers domains resolv_conf
  servers=$(awk '$1 == "nameserver" { printf "%s ", $2 }' "$root/etc/resolv.conf")
  domains=$(awk '$1 == "search" { $1 = ""; print }' "$root/etc/resolv.conf")
  mount_empty_run
  mkdir -p "$root/run/systemd/system" "$root/run/systemd/resolved.conf.d"
  for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
    systemd-udev-trigger.service systemd-udev-settle.service systemd-modules-load.service \
    systemd-sysctl.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    sys-kernel-debug.mount sys-kernel-tracing.mount getty.target console-getty.service; do
    ln -s /dev/null "$root/run/systemd/system/$unit"
  done
  # The VM uses the cluster's name servers until the agent configures others.
  resolv_conf=$(readlink "$root/etc/resolv.conf") || exit_if_killed $? || true
  if [[ $resolv_conf == *systemd/resolve* ]]; then
    printf '[Resolve]\nFallbackDNS=%s\nDomains=%s\n' "$servers" "$domains" >"$root/run/systemd/resolved.conf.d/kubernetes.conf"
  fi
}

mount_empty_run() {
  local new
  new=$(mktemp -d)
  mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$new"
  replace_directory "$new" "$root/run"
}

is_systemd() {
  local path
  path=$(readlink -f "$1") || exit $?
  [[ $path == */systemd ]]
}

# start_init INIT replaces this process by the init program.
start_init() {
  export container=kubernetes
  if is_systemd "$1"; then
    prepare_systemd
    # systemd makes mounts shared, except in a container. With shared mounts, a disk is also unmounted in the mount namespaces of all
    # services.
    mount --make-rshared "$root/"
  fi
  exec_init "$1"
}

# install_reboot_programs installs programs that restart the VM: Kubernetes restarts a container after its init program exits. The
# stemcell's programs work only with systemd.
install_reboot_programs() {
  local name
  {
    echo '#!/bin/bash'
    cat <<'PROGRAM'
# Stops services and jobs, as runit does before a halt, and ends the init program runsvdir.
processes() { pgrep --inverse --exact 'runsv|runsvdir|svlogd|reboot|halt|poweroff|shutdown'; }
trap '' HUP TERM
{
  sv -w 10 force-stop /etc/service/*
  kill -s TERM $(processes)
  for ((tenth = 0; tenth < 100; tenth++)); do
    processes || break
    sleep 0.1
  done
  kill -s HUP 1
} </dev/null >/dev/null 2>&1 &
PROGRAM
  } | update_file "$root/usr/local/sbin/reboot" 0755
  for name in halt poweroff shutdown; do update_link reboot "$root/usr/local/sbin/$name"; done
}
