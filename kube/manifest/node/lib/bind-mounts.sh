# Directories that the agent mounts.

# bring_directories: a disk with `attach: bind` is a directory, mounted at $devices/CID. The agent would mount it as a
# device, and unmount it there instead of where it has bound it: its own option for that is for all
# disks of a machine. So a program comes before mount(8) and umount(8) in its path, which does with such
# a directory what the agent means, and nothing else with anything else; but for directories that the agent has bound
# and then mounts again with options, as it does with /tmp and /var/log: the filesystem that they lie on is the node's,
# which would be given the options as a whole.
bring_directories() {
  {
    echo '#!/bin/bash'
    cat <<'PROGRAM'
# mount(8), or by another name umount(8): a disk that is a directory is mounted by binding it, and
# unmounted where it is bound. A directory of a filesystem that is mounted again is so without the filesystem.
program=${0##*/}
root=${BOSH_NODE_ROOT:-}
if [[ " $* " == *[\ ,=]remount[\ ,]* && " $* " != *[\ ,=]bind[\ ,]* ]]; then
  for each; do
    ! awk -v at="$each" '$5 == at { folder = $4 } END { exit folder == "" || folder == "/" }' "$root/proc/self/mountinfo" ||
      exec "$root/bin/$program" "$@" -o bind
  done
fi
if [[ ${1:-} != "$root"/dev/bosh/* ]] || ! mountpoint -q "$1"; then
  exec "$root/bin/$program" "$@"
fi
[[ $program != mount ]] || exec "$root/bin/mount" --bind "$@"
mapfile -t bound < <(awk -v at="$1" '
  { volume[NR] = $3 " " $4; place[NR] = $5 }
  $5 == at { wanted = $3 " " $4 }
  END { for (i = NR; i; i--) if (volume[i] == wanted && place[i] != at) print place[i] }' "$root/proc/self/mountinfo")
((${#bound[@]} == 0)) || exec "$root/bin/umount" "${bound[@]}"
PROGRAM
  } | update "$root/usr/local/sbin/mount" 0755
  link mount "$root/usr/local/sbin/umount"
  hash -r # this shell remembers where the others are
}
