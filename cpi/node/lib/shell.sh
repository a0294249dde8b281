# Settings and functions that every program uses.
set -euo pipefail

# root is the directory that replaces / in tests; containers do not set it.
root=${BOSH_NODE_ROOT:-}

# fail MESSAGE... prints the message and exits with status 1. The message ends with its error code; see docs/reference/errors.md.
fail() { echo "$*" >&2; exit 1; }

# exit_if_killed STATUS exits if STATUS is of a program that did not start, or was killed, for example by the kernel without memory: its
# failure does not answer the question that the program was asked. Otherwise, it returns STATUS. Perl's die can have status 255. In a
# command substitution or pipeline, it exits only the subshell, so check the status of the substitution, too.
exit_if_killed() { (($1 < 126 || $1 == 255)) || exit "$1"; return "$1"; }
