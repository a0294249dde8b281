# Succeeds if the agent runs. This is enough, because the director waits for the agent's first response. Needs only bash and procfs.
. lib/shell.sh

for exe in "$root"/proc/[0-9]*/exe; do
  [[ $(readlink "$exe") != */bosh-agent* ]] || exit 0
done
exit 1
