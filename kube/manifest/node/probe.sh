# What a machine would find on this node, as lines "name value" in the Pod's termination message. It runs as a machine does, and
# leaves nothing on the node but the modules that the kernel has loaded.
#
# SERVICE is the name and port of a Service whose only Pod this is.
set -uo pipefail
shopt -s extglob

tell() { printf '%s %s\n' "$1" "$2" >>/dev/termination-log; }

# tries NAME COMMAND...: yes or no.
tries() {
  local name=$1
  shift
  if "$@" >/dev/null 2>&1; then tell "$name" yes; else tell "$name" no; fi
}

# known FILESYSTEM: the kernel has it, or loads it when it is asked for. Another error than "unknown filesystem type" comes of
# the device, which is none.
known() { ! LC_ALL=C mount -t "$1" /dev/null "$empty" 2>&1 | grep -q 'unknown filesystem'; }

loops() { [[ -c /dev/loop-control ]] || mknod /dev/loop-control c 10 237; losetup --find; }

links() { ip link add bosh-probe type "$1" && ip link delete bosh-probe; }

overlays() {
  mkdir "$empty"/{lower,upper,work,over} &&
    mount -t overlay -o "lowerdir=$empty/lower,upperdir=$empty/upper,workdir=$empty/work" overlay "$empty/over" &&
    umount "$empty/over"
}

# shellcheck disable=SC2016 # expanded inside
answers() { timeout 5 bash -c ': <"/dev/tcp/$0/$1"' "$1" "$2"; }

# answers_itself NAME PORT: a Service's only Pod reaches it. Its endpoint may take a moment to be there.
answers_itself() {
  local server
  perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalPort => $ARGV[0], ReuseAddr => 1) or exit 1;
    while ($c = $s->accept) { close $c }' "$2" &
  server=$!
  for _ in {1..10}; do
    if answers "$1" "$2"; then
      kill "$server"
      return 0
    fi
    kill -0 "$server" || return
    sleep 1
  done
  kill "$server"
  return 1
}

empty=$(mktemp -d)
mount -t tmpfs tmpfs "$empty"
tell kernel "$(uname -r)"
case $(stat --file-system --format %T /sys/fs/cgroup) in
  cgroup2fs) tell cgroup v2 ;;
  *) tell cgroup v1 ;;
esac
own=$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup)
for group in "/sys/fs/cgroup$own/memory.oom.group" /sys/fs/cgroup/memory.oom.group; do
  if [[ -e $group ]]; then
    tell oom-group "$(<"$group")"
    break
  fi
done
tries loop loops
tries overlay overlays
for filesystem in ext4 xfs; do tries "$filesystem" known "$filesystem"; done
for kind in dummy bridge; do tries "$kind" links "$kind"; done
tries open-files bash -c 'ulimit -n 524288'
tries dns getent ahosts kubernetes.default.svc
tries api answers "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"
if command -v perl >/dev/null; then
  tries hairpin answers_itself "${SERVICE%:*}" "${SERVICE#*:}"
fi
umount "$empty"
