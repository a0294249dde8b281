# shellcheck shell=bash
# Sourced by monit and by jobs that use its HTTP interface. permit_monit_access moves the calling process to the cgroup from which
# firewall rules allow connections to monit.

# Network class b054:0001: "BOSH", and number 1.
monit_isolation_classid=2958295041

permit_monit_access() {
  local mounts path cgroup
  if [[ -f /sys/fs/cgroup/cgroup.controllers || $(stat -fc %T /sys/fs/cgroup 2>/dev/null) == cgroup2fs ]]; then
    mounts=$(awk '$1 == "cgroup2" && $3 == "cgroup2" { print $2 }' /proc/self/mounts)
    path=$(awk -F: '$1 == "0" { print $3 }' /proc/self/cgroup)
    if [[ -z $mounts || $mounts == *$'\n'* || -z $path ]]; then
      echo "permit_monit_access: cannot find the cgroup of this process" >&2
      return 1
    fi
    cgroup=$mounts$path/monit-api-access
    mkdir -p "$cgroup"
    echo $$ >"$cgroup/cgroup.procs"
  else
    # On a node without net_cls, both are empty, and this creates a directory in the VM's root filesystem.
    mounts=$(awk '$1 == "cgroup" && /net_cls/ { print $2 }' /proc/self/mounts)
    path=$(awk -F: '/net_cls/ { print $3 }' /proc/self/cgroup)
    cgroup=$mounts/$path/monit-api-access
    mkdir -p "$cgroup"
    echo "$monit_isolation_classid" >"$cgroup/net_cls.classid"
    echo $$ >"$cgroup/tasks"
  fi
}
