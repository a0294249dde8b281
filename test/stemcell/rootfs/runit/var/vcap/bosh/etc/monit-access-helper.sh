# shellcheck shell=bash
# Sourced by monit and by jobs that talk to it. permit_monit_access moves the calling process into the cgroup
# that rules of a firewall let through to monit.

# b054:0001 of the network classes: "BOSH", and the first of its uses.
monit_isolation_classid=2958295041

permit_monit_access() {
  local mounts own cgroup
  if [[ -f /sys/fs/cgroup/cgroup.controllers || $(stat -fc %T /sys/fs/cgroup 2>/dev/null) == cgroup2fs ]]; then
    mounts=$(awk '$1 == "cgroup2" && $3 == "cgroup2" { print $2 }' /proc/self/mounts)
    own=$(awk -F: '$1 == "0" { print $3 }' /proc/self/cgroup)
    if [[ -z $mounts || $mounts == *$'\n'* || -z $own ]]; then
      echo "permit_monit_access: cannot tell this process's cgroup" >&2
      return 1
    fi
    cgroup=$mounts$own/monit-api-access
    mkdir -p "$cgroup"
    echo $$ >"$cgroup/cgroup.procs"
  else
    # On a node without net_cls both are empty, and what is made is a folder of the machine's root.
    mounts=$(awk '$1 == "cgroup" && /net_cls/ { print $2 }' /proc/self/mounts)
    own=$(awk -F: '/net_cls/ { print $3 }' /proc/self/cgroup)
    cgroup=$mounts/$own/monit-api-access
    mkdir -p "$cgroup"
    echo "$monit_isolation_classid" >"$cgroup/net_cls.classid"
    echo $$ >"$cgroup/tasks"
  fi
}
