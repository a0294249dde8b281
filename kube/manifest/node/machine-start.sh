# PID 1 of a machine's container, until it becomes the stemcell's init.
#
# It makes a container's start look like a machine's boot: /var/vcap is where it was, the agent finds
# its settings, and the persistent disk is mounted before any job can write to /var/vcap/store.
#
# $1: the init program; found out when not given.
. lib/shell.sh
. lib/signals.sh
. lib/pause.sh
. lib/device.sh
. lib/lock.sh
. lib/json.sh
. lib/files.sh
. lib/etc.sh
. lib/mounts.sh
. lib/state.sh
. lib/reserve.sh
. lib/api-server.sh
. lib/agent.sh
. lib/bind-mounts.sh
. lib/store.sh
. lib/memory.sh
. lib/limits.sh
. lib/sizes.sh
. lib/cgroups.sh
. lib/init.sh

volume=$root/bosh/machine # the Pod's volume
given=$root/bosh/settings # the Secret that the CPI made
devices=$root/dev/bosh
bosh=$root/var/vcap/bosh

say() { echo "machine-start: $*" >&2; }

# PID 1 gets no signal that it has not asked for.
trap 'say "told to end before the init program has started"; exit 1' "${end_signals[@]}"

init=$(find_init "${1:-}")
[[ -x $init ]] || { say "the stemcell has no init program $init; set cloud_properties.init"; exit 1; }
[[ -f $bosh/agent.json ]] || { say "the image is no BOSH stemcell: it has no $bosh/agent.json"; exit 1; }
agent_json=$(<"$bosh/agent.json") # before the volume's /var/vcap hides it

let_one_end
raise_limits
release_reserve
release_etc
keep_name_servers
keep_changes
keep_api_server
bring_vcap
bring_certificates
bring_monit_state
configure_agent "$agent_json"
bring_directories
# A node's directory may lie on a filesystem mounted nodev.
! hot_plugged || mount -o remount,bind,dev,rw "$devices"
# A volume of the Pod is anybody's to remove files from; on a machine they are their owners'.
[[ ! -d $root/dev/shm ]] || chmod 1777 "$root/dev/shm"
mkdir -p "$root/var/vcap/store"
restore_store
await_others
keep_reserve
tell_own_sizes
exec {quiet}>&- # what waits has it, and the init program no use for it
start "$init"
