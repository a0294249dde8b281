# PID 1 of a machine's container, until it becomes the stemcell's init.
#
# It makes a container's start look like a machine's boot: /var/vcap is where it was, the agent finds
# its settings, and the persistent disk is mounted before any job can write to /var/vcap/store.
#
# $1: the init program; found out when not given.
set -euo pipefail

volume=/var/lib/bosh-machine
settings=/var/lib/bosh-settings/settings.json
devices=/dev/bosh
bosh=/var/vcap/bosh

say() { echo "machine-start: $*" >&2; }

# The kubelet mounts these three files; the agent must be able to write them. What the kubelet put
# there stays until the agent has something better.
release_etc() {
  local file content
  for file in /etc/resolv.conf /etc/hosts /etc/hostname; do
    content=$(cat "$file" 2>/dev/null) || continue
    umount "$file" 2>/dev/null || continue
    printf '%s\n' "$content" >"$file" || say "cannot write $file"
  done
}

# With resolvconf the agent makes resolv.conf anew of its networks' name servers. Where they name none, the
# machine keeps those of its Pod; prepare_systemd does the same for systemd. On a machine /run is empty at
# boot; in an image it may hold the name servers of the place where the stemcell was built.
keep_name_servers() {
  local tail=/etc/resolvconf/resolv.conf.d/tail
  [[ -d ${tail%/*} ]] || return 0
  rm -f /run/resolvconf/interface/* "$tail"
  grep -qE '"dns": *\[ *"' "$settings" || cp /etc/resolv.conf "$tail"
}

# The machine's own writable state lives on the Pod's volume, seeded from the image once. The copy is
# renamed into place, so that a start that was cut short is begun again.
bring_vcap() {
  if [[ ! -d $volume/vcap ]]; then
    say "first start: copying /var/vcap from the stemcell"
    rm -rf "$volume/vcap.new"
    cp -a /var/vcap "$volume/vcap.new"
    mv -T "$volume/vcap.new" "$volume/vcap"
  fi
  mount --bind "$volume/vcap" /var/vcap
  # On a machine this is a tmpfs that the agent makes on every boot. What is left of the last one would
  # let a monit that waits for it start too early, and believe in processes that are gone.
  rm -rf /var/vcap/data/sys/run
}

# The certificates that the director wants trusted: the agent writes them when it is told to, and not
# again at a boot.
bring_certificates() {
  local trusted=/usr/local/share/ca-certificates
  command -v update-ca-certificates >/dev/null || return 0
  mkdir -p "$trusted"
  if [[ -d $volume/ca-certificates ]]; then
    mount --bind "$volume/ca-certificates" "$trusted"
    update-ca-certificates >/dev/null 2>&1 || say "cannot renew the trusted certificates"
    return 0
  fi
  rm -rf "$volume/ca-certificates.new"
  cp -a "$trusted" "$volume/ca-certificates.new"
  mv -T "$volume/ca-certificates.new" "$volume/ca-certificates"
  mount --bind "$volume/ca-certificates" "$trusted"
}

# monit keeps in root's home which jobs the director has stopped.
bring_monit_state() {
  ln -sfn "$volume/monit.state" ~root/.monit.state
}

# The stemcell's agent.json may be made for another kind of machine: disks come formatted and as
# devices, nothing is partitioned, and the settings come as a file. Only these keys are set.
configure_agent() {
  local target
  perl -0777 -pe '
    my %want = (UsePreformattedPersistentDisk => "true", BindMountPersistentDisk => "false",
                SkipDiskSetup => "true", UseDefaultTmpDir => "true");
    for my $key (sort keys %want) {
      next if s/("$key"\s*:\s*)(?:true|false)/$1$want{$key}/;
      s/("Linux"\s*:\s*\{)(\s*\})?/$1 . "\"$key\": $want{$key}" . ($2 ? $2 : ",")/e
        or s/^(\s*\{)/$1"Platform": {"Linux": {"$key": $want{$key}}},/;
    }
    my $file = q({"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"});
    unless (/"Type"\s*:\s*"File"/) {
      s/("Sources"\s*:\s*)\[.*?\]/$1\[$file\]/s
        or s/^(\s*\{)/$1"Infrastructure": {"Settings": {"Sources": [$file]}},/;
    }
  ' "$bosh/agent.json" >"$bosh/agent.json.new"
  mv -T "$bosh/agent.json.new" "$bosh/agent.json"
  target=$(perl -0777 -ne 'print $1 if /"SettingsPath"\s*:\s*"([^"]+)"/' "$bosh/agent.json")
  [[ $target == /* ]] || target=$bosh/$target
  install -D -m 0600 "$settings" "$target"
}

# A disk with `attach: bind` is a directory, mounted at $devices/CID. The agent would mount it as a
# device, and unmount it there instead of where it has bound it: its own option for that is for all
# disks of a machine. So a program comes before mount(8) and umount(8) in its path, which does with such
# a directory what the agent means, and nothing else with anything else.
bring_directories() {
  mkdir -p /usr/local/sbin
  {
    echo '#!/bin/bash'
    cat <<'PROGRAM'
# mount(8), or by another name umount(8): a disk that is a directory is mounted by binding it, and
# unmounted where it is bound.
program=${0##*/}
if [[ ${1:-} != /dev/bosh/* ]] || ! mountpoint -q "$1"; then
  exec "/bin/$program" "$@"
fi
[[ $program != mount ]] || exec /bin/mount --bind "$@"
mapfile -t bound < <(awk -v at="$1" '
  { volume[NR] = $3 " " $4; place[NR] = $5 }
  $5 == at { wanted = $3 " " $4 }
  END { for (i = NR; i; i--) if (volume[i] == wanted && place[i] != at) print place[i] }' /proc/self/mountinfo)
((${#bound[@]} == 0)) || exec /bin/umount "${bound[@]}"
PROGRAM
  } >/usr/local/sbin/mount
  chmod 0755 /usr/local/sbin/mount
  ln -sf mount /usr/local/sbin/umount
  hash -r # this shell remembers where the others are
}

# hot_plugged: succeeds when disks come and go while the machine runs, in a folder of the node. Those of a
# machine that is made again for each disk are part of its container from the start.
hot_plugged() { mountpoint -q "$devices"; }

# A held lock is the sign that the attachment of this very moment made the device node: the kernel
# drops it when the attachment's process dies, and a node's reboot drops all of them.
fresh() {
  [[ -b $devices/$1 ]] || mountpoint -q "$devices/$1" || return 1
  hot_plugged || return 0
  [[ -e $devices/.$1.lock ]] || return 1
  ! flock --nonblock --shared "$devices/.$1.lock" true
}

# known_disks HINTS: the disks that the agent was told of, one per line: the file's outermost keys.
known_disks() {
  perl -0777 -ne 'print "$1\n" while /"([^"]*)"\s*:\s*(\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|(?2))*\}|"(?:[^"\\]|\\.)*")/g' "$1"
}

# The agent writes down which disk it mounted last, but mounts it again after a boot only when it is
# partitioned, which no disk of this CPI is. So it is done here, before any job can start.
restore_store() {
  local record=$bosh/managed_disk_settings.json hints=$bosh/persistent_disk_hints.json cid waited=0 trouble="" options
  [[ -s $record ]] || return 0
  cid=$(<"$record")
  options=$(perl -0777 -ne 'print join ",", $1 =~ /"([^"]+)"/g if /"persistent_disk_mount_options"\s*:\s*\[([^\]]*)\]/' "$settings")
  # Without hints, as when they are on a tmpfs, the disk may well be attached.
  if [[ -e $hints ]] && ! grep -qF "\"$cid\"" "$hints"; then
    say "disk $cid was taken from this machine: forgetting that it was mounted"
    rm -f "$record"
    return 0
  fi
  if ! hot_plugged && ! fresh "$cid"; then
    say "disk $cid is none of this machine's any more: forgetting that it was mounted"
    rm -f "$record"
    return 0
  fi
  # In the middle of a migration from one disk to another. The agent's record does not tell which of
  # them is the one to work on, and the agent refuses to boot. The director knows, and tells a new VM.
  if [[ -e $hints && $(known_disks "$hints") == *$'\n'* ]]; then
    say "the machine ended in the middle of a migration between its disks; the VM has to be recreated, which loses nothing on them"
    exit 1
  fi
  until fresh "$cid" && trouble=$(mount "$devices/$cid" /var/vcap/store ${options:+-o "$options"} 2>&1); do
    if ((waited++ % 150 == 0)); then
      say "waiting for disk $cid to be attached before any job may start${trouble:+: $trouble}"
    fi
    sleep 0.2
  done
  say "disk $cid is mounted at /var/vcap/store"
}

# What systemd needs of a container: a /run that is empty, cgroups of its own, and no units that would
# work on the node's devices, consoles and kernel instead of the machine's.
prepare_systemd() {
  local unit servers domains
  servers=$(awk '$1 == "nameserver" { printf "%s ", $2 }' /etc/resolv.conf)
  domains=$(awk '$1 == "search" { $1 = ""; print }' /etc/resolv.conf)
  empty_run
  mkdir -p /run/systemd/system /run/systemd/resolved.conf.d
  for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
    systemd-udev-trigger.service systemd-udev-settle.service systemd-modules-load.service \
    systemd-sysctl.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    sys-kernel-debug.mount sys-kernel-tracing.mount getty.target console-getty.service; do
    ln -s /dev/null "/run/systemd/system/$unit"
  done
  # The cluster's name servers serve until the agent is told of others.
  if [[ $(readlink /etc/resolv.conf) == *systemd/resolve* ]]; then
    printf '[Resolve]\nFallbackDNS=%s\nDomains=%s\n' "$servers" "$domains" >/run/systemd/resolved.conf.d/kubernetes.conf
  fi
}

# A Pod's mounts below /run, for example a service account's token, stay.
empty_run() {
  local new mount
  new=$(mktemp -d)
  mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$new"
  while read -r mount; do
    if [[ -d $mount ]]; then
      mkdir -p "$new${mount#/run}"
    else
      install -D /dev/null "$new${mount#/run}"
    fi
    mount --bind "$mount" "$new${mount#/run}"
  done < <(awk '$5 ~ "^/run/" { print $5 }' /proc/self/mountinfo)
  mount --rbind "$new" /run
  umount --lazy "$new"
  rmdir "$new"
}

# start INIT: in a cgroup namespace of its own systemd finds its cgroup where it expects it, and cannot
# reach the node's. cgroup v2 has to be mounted from inside of it.
start() {
  export container=kubernetes
  [[ $(readlink -f "$1") == */systemd ]] || exec "$1"
  prepare_systemd
  # As systemd leaves it on a machine, but not in a container: a disk that is unmounted is unmounted in
  # the mount namespaces of all services too.
  mount --make-rshared /
  # shellcheck disable=SC2016 # expanded inside
  exec unshare --cgroup /bin/bash -ec '
    if [[ $(stat --file-system --format %T /sys/fs/cgroup) == cgroup2fs ]]; then
      mount -t cgroup2 cgroup2 /sys/fs/cgroup
    elif [[ ! -w /sys/fs/cgroup ]]; then
      mount -o remount,bind,rw /sys/fs/cgroup
    fi
    exec "$0"' "$1"
}

find_init() {
  if [[ -n ${1:-} ]]; then
    echo "$1"
  elif [[ -x /usr/sbin/runsvdir-start ]]; then
    echo /usr/sbin/runsvdir-start
  else
    echo /sbin/init
  fi
}

init=$(find_init "${1:-}")
[[ -x $init ]] || { say "the stemcell has no init program $init; set cloud_properties.init"; exit 1; }
[[ -f $bosh/agent.json ]] || { say "the image is no BOSH stemcell: it has no $bosh/agent.json"; exit 1; }

release_etc
keep_name_servers
bring_vcap
bring_certificates
bring_monit_state
configure_agent
bring_directories
# A node's directory may lie on a filesystem mounted nodev.
! hot_plugged || mount -o remount,bind,dev,rw "$devices"
mkdir -p /var/vcap/store
restore_store
start "$init"
