# Settings and functions that every program uses.
set -euo pipefail

# root is the directory that replaces / in tests; containers do not set it.
root=${BOSH_NODE_ROOT:-}

# fail MESSAGE... prints the message and exits with status 1. The message ends with its error code; see docs/reference/errors.md.
fail() { echo "$*" >&2; exit 1; }
