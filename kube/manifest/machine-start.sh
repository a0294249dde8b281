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
}

# The stemcell's agent.json may be made for another kind of machine: disks come formatted and as
# devices, nothing is partitioned, and the settings come as a file. Only these keys are set.
configure_agent() {
  local target
  perl -0777 -i -pe '
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
  ' "$bosh/agent.json"
  target=$(perl -0777 -ne 'print $1 if /"SettingsPath"\s*:\s*"([^"]+)"/' "$bosh/agent.json")
  [[ $target == /* ]] || target=$bosh/$target
  install -D -m 0600 "$settings" "$target"
}

# A held lock is the sign that the attachment of this very moment made the device node: the kernel
# drops it when the attachment's process dies, and a node's reboot drops all of them.
fresh() {
  [[ -b $devices/$1 && -e $devices/.$1.lock ]] || return 1
  ! flock --nonblock --shared "$devices/.$1.lock" true
}

# The agent writes down which disk it mounted last, but mounts it again after a boot only when it is
# partitioned, which no disk of this CPI is. So it is done here, before any job can start.
restore_store() {
  local record=$bosh/managed_disk_settings.json hints=$bosh/persistent_disk_hints.json cid waited=0
  [[ -s $record ]] || return 0
  cid=$(<"$record")
  if ! grep -qF "\"$cid\"" "$hints" 2>/dev/null; then
    say "disk $cid was taken from this machine: forgetting that it was mounted"
    rm -f "$record"
    return 0
  fi
  until fresh "$cid" && mount "$devices/$cid" /var/vcap/store; do
    if ((waited++ % 150 == 0)); then
      say "waiting for disk $cid to be attached before any job may start"
    fi
    sleep 0.2
  done
  say "disk $cid is mounted at /var/vcap/store"
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
bring_vcap
configure_agent
# A node's directory may lie on a filesystem mounted nodev.
mount -o remount,bind,dev,rw "$devices"
mkdir -p /var/vcap/store
restore_store
export container=kubernetes
exec "$init"
