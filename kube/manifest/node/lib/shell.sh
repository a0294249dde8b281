# What every program begins with.
set -euo pipefail

# A folder that stands for the filesystem's root: tests give one, no container does.
root=${BOSH_NODE_ROOT:-}

fail() { echo "$*" >&2; exit 1; }
