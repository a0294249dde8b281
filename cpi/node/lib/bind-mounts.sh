# Directories that the agent mounts.

# install_mount_wrappers installs a program that precedes mount(8) and umount(8) in the agent's PATH. It handles two cases, and passes on
# all other calls unchanged:
#
#   - A Filesystem disk of a VM with `disk_strategy: recreate` is a directory, mounted at $devices/CID. The agent would mount it as a
#     device, and later unmount it at $devices/CID instead of its own mount point. The agent's option BindMountPersistentDisk would apply
#     to all disks of the VM.
#   - The agent binds directories such as /tmp and /var/log to themselves, and remounts them with options. They are on a filesystem of
#     the node. Without the option bind, the options would apply to that whole filesystem.
install_mount_wrappers() {
  {
    echo '#!/bin/bash'
    declare -f exit_if_killed
    cat <<'PROGRAM'
# Runs mount(8), or umount(8) if it is called by that name. Binds a disk that is a directory, and unmounts it where it is bound. A remount
# of a bound directory does not change its filesystem.
program=${0##*/}
root=${BOSH_NODE_ROOT:-}
if [[ " $* " == *[\ ,=]remount[\ ,]* && " $* " != *[\ ,=]bind[\ ,]* ]]; then
  for argument; do
    if awk -v path="$argument" '$5 == path { source = $4 } END { exit source == "" || source == "/" }' "$root/proc/self/mountinfo" ||
      exit_if_killed $?; then
      exec "$root/bin/$program" "$@" -o bind
    fi
  done
fi
if [[ ${1:-} != "$root"/dev/bosh/* ]] || ! { mountpoint -q "$1" || exit_if_killed $?; }; then
  exec "$root/bin/$program" "$@"
fi
[[ $program != mount ]] || exec "$root/bin/mount" --bind "$@"
targets=$(awk -v disk="$1" '
  { source[NR] = $3 " " $4; target[NR] = $5 }
  $5 == disk { wanted = $3 " " $4 }
  END { for (i = NR; i; i--) if (source[i] == wanted && target[i] != disk) print target[i] }' "$root/proc/self/mountinfo") || exit
[[ $targets ]] || exit 0
mapfile -t targets <<<"$targets"
exec "$root/bin/umount" "${targets[@]}"
PROGRAM
  } | update_file "$root/usr/local/sbin/mount" 0755
  update_link mount "$root/usr/local/sbin/umount"
  hash -r # forget the cached paths of the original programs
}
