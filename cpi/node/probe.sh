# Reports what the node provides for a VM, as lines "NAME VALUE" in the Pod's termination message. It runs like a VM, and changes nothing
# on the node, except that the kernel may load modules.
#
# Environment: SERVICE (NAME:PORT of a Service with this Pod as its only endpoint).
set -uo pipefail
shopt -s extglob

report() { printf '%s %s\n' "$1" "$2" >>/dev/termination-log; }

# try NAME COMMAND... reports yes if the command succeeds, and no otherwise.
try() {
  local name=$1
  shift
  if "$@" >/dev/null 2>&1; then report "$name" yes; else report "$name" no; fi
}

# has_filesystem TYPE succeeds if the kernel supports the filesystem, or loads its module for a mount. Any error other than "unknown
# filesystem type" is about /dev/null, which is not a block device.
has_filesystem() { ! LC_ALL=C mount -t "$1" /dev/null "$directory" 2>&1 | grep -q 'unknown filesystem'; }

has_loop_device() { [[ -c /dev/loop-control ]] || mknod /dev/loop-control c 10 237; losetup --find; }

has_link_type() { ip link add bosh-probe type "$1" && ip link delete bosh-probe; }

has_overlay() {
  mkdir "$directory"/{lower,upper,work,merged} &&
    mount -t overlay -o "lowerdir=$directory/lower,upperdir=$directory/upper,workdir=$directory/work" overlay "$directory/merged" &&
    umount "$directory/merged"
}

has_apparmor() { [[ $(</sys/module/apparmor/parameters/enabled) == Y ]]; }

# has_controllers succeeds if all controllers of the kernel are mounted. Garden requires this with cgroup v1.
has_controllers() {
  local controller hierarchy enabled
  while read -r controller hierarchy _ enabled; do
    [[ $controller == \#* || $enabled == 0 || $hierarchy != 0 ]] || return 1
  done </proc/cgroups
}

# can_connect HOST PORT
# shellcheck disable=SC2016 # the inner bash expands it
can_connect() { timeout 5 bash -c ': <"/dev/tcp/$0/$1"' "$1" "$2"; }

# can_connect_to_itself NAME PORT succeeds if this Pod can connect to itself through the Service. It retries, because the endpoint may not
# exist yet.
can_connect_to_itself() {
  local server
  perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalPort => $ARGV[0], ReuseAddr => 1) or exit 1;
    while ($c = $s->accept) { close $c }' "$2" &
  server=$!
  for _ in {1..10}; do
    if can_connect "$1" "$2"; then
      kill "$server"
      return 0
    fi
    kill -0 "$server" || return
    sleep 1
  done
  kill "$server"
  return 1
}

directory=$(mktemp -d)
mount -t tmpfs tmpfs "$directory"
report kernel "$(uname -r)"
case $(stat --file-system --format %T /sys/fs/cgroup) in
  cgroup2fs) report cgroup v2 && report cgroup-controllers yes ;;
  *) report cgroup v1 && try cgroup-controllers has_controllers ;;
esac
cgroup=$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup)
for file in "/sys/fs/cgroup$cgroup/memory.oom.group" /sys/fs/cgroup/memory.oom.group; do
  if [[ -e $file ]]; then
    report oom-group "$(<"$file")"
    break
  fi
done
try loop has_loop_device
try overlay has_overlay
for filesystem in ext4 xfs; do try "$filesystem" has_filesystem "$filesystem"; done
for type in dummy bridge; do try "$type" has_link_type "$type"; done
try user-namespaces unshare --user --map-root-user true
try apparmor has_apparmor
try xfs-quotas test -e /proc/fs/xfs/xqmstat
try ip-forwarding bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
try nat iptables --wait --table nat --list-rules
try open-files bash -c 'ulimit -n 524288'
try dns getent ahosts kubernetes.default.svc
try api can_connect "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"
if command -v perl >/dev/null; then
  try hairpin can_connect_to_itself "${SERVICE%:*}" "${SERVICE#*:}"
fi
umount "$directory"
