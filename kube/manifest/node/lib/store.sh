# The persistent disks at a machine's start.

# hot_plugged: succeeds when disks come and go while the machine runs, in a folder of the node. Those of a
# machine that is made again for each disk are part of its container from the start.
hot_plugged() { mountpoint -q "$devices"; }

# fresh CID: succeeds when the attachment of this very moment made the disk's node, or directory.
fresh() {
  is_device "$devices/$1" || mountpoint -q "$devices/$1" || return 1
  ! hot_plugged || held "$devices/.$1.lock"
}

# known_disks: those that the agent was told of, one a line. It fails when that cannot be told: without the
# agent's file, as when that is on a tmpfs, and with one that is damaged.
known_disks() {
  local hints=$bosh/persistent_disk_hints.json
  [[ -e $hints ]] && json keys "$hints"
}

# restore_record RECORD: a power cut after a disk was mounted has left the agent's record of that empty. It is the disk that the agent
# knows, if it knows one alone.
restore_record() {
  local known
  if ! known=$(known_disks) || [[ $known == *$'\n'* ]]; then
    say "the agent's record of the disk that it has mounted is damaged, as after a power cut: recreate the VM, which loses nothing on its disks"
    exit 1
  fi
  printf '%s' "$known" | update "$1" 0644
}

# restore_store: the agent writes down which disk it mounted last, but mounts it again after a boot only when
# it is partitioned, which no disk of this CPI is. So it is done here, before any job can start.
restore_store() {
  local record=$bosh/managed_disk_settings.json cid known waited=0 trouble="" options
  [[ -e $record ]] || return 0
  [[ -s $record ]] || restore_record "$record"
  cid=$(<"$record")
  [[ -n $cid ]] || return 0
  options=$(<"$given/mount-options")
  if known=$(known_disks) && ! grep -qxF "$cid" <<<"$known"; then
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
  if [[ $known == *$'\n'* ]]; then
    say "the machine ended in the middle of a migration between its disks; the VM has to be recreated, which loses nothing on them"
    exit 1
  fi
  until fresh "$cid" && trouble=$(mount "$devices/$cid" "$root/var/vcap/store" ${options:+-o "$options"} 2>&1); do
    if ((waited++ % 150 == 0)); then
      say "waiting for disk $cid to be attached before any job may start${trouble:+: $trouble}"
    fi
    sleep 0.2
  done
  say "disk $cid is mounted at /var/vcap/store"
}

# await_others: a machine's other disks are there before any job, too: those of an instance group with several, and
# dynamic ones, to which the agent has made a link. One may be gone without the agent having been told, so that no machine
# waits for them longer than a minute.
await_others() {
  local cid waited=0
  hot_plugged || return 0
  for cid in $(known_disks; ls "$root/var/vcap/data/dynamic_disks" 2>/dev/null); do
    fresh "$cid" || say "waiting for disk $cid to be attached, a minute at most"
    until fresh "$cid"; do
      ((waited++ < 300)) || { say "going on without disk $cid"; break; }
      sleep 0.2
    done
  done
}
