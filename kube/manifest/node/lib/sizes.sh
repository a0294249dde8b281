# What /proc says of a machine's size: its own, where the node has lxcfs (https://linuxcontainers.org/lxcfs/).

lxcfs=$root/bosh/lxcfs/proc
sizes=(cpuinfo loadavg meminfo stat swaps uptime)
own_sizes=() # those that are the machine's own

# How often a machine sees to it that /proc can be read, in seconds.
sizes_period=${SIZES_PERIOD:-1}

# tell_own_sizes: from now on, for as long as the machine runs, in a process whose command is shown in short.
tell_own_sizes() {
  [[ -d $root/bosh/lxcfs ]] || return 0
  put_own_sizes || say "/proc tells the node's sizes: the node has no lxcfs where pods.lxcfs says, or the machine may not mount"
  /bin/bash -euo pipefail -c "
    $(declare -p root lxcfs sizes own_sizes sizes_period quiet)
    $(declare -f say pause keep_own_sizes has_own_sizes put_own_sizes take_own_sizes readable)
    keep_own_sizes" sizes &
}

# keep_own_sizes: a file of a lxcfs that has ended cannot be read, and where it was restarted it is another. Programs do
# without the machine's sizes, and not without any.
keep_own_sizes() {
  while pause "$sizes_period"; do
    if ! has_own_sizes; then
      put_own_sizes || true
    elif ! readable "$root/proc/uptime"; then
      say "the node's lxcfs has ended: /proc tells the node's sizes until it is back"
      take_own_sizes
    fi
  done
}

has_own_sizes() { [[ -n ${own_sizes[*]} ]]; }

put_own_sizes() {
  local each
  for each in "${sizes[@]}"; do
    if readable "$lxcfs/$each" && mount --bind "$lxcfs/$each" "$root/proc/$each" 2>/dev/null; then own_sizes+=("$each"); fi
  done
  has_own_sizes
}

take_own_sizes() {
  local each
  for each in "${own_sizes[@]}"; do umount --lazy "$root/proc/$each"; done
  own_sizes=()
}

# readable FILE: succeeds when it has a line. Without another process: it is asked often.
readable() { { read -r <"$1"; } 2>/dev/null; }
