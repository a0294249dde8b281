# Succeeds once the agent runs. The director waits for its first answer itself. It needs only bash and procfs.
. lib/shell.sh

for exe in "$root"/proc/[0-9]*/exe; do
  [[ $(readlink "$exe") != */bosh-agent* ]] || exit 0
done
exit 1
