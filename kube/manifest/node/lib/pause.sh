# Waiting.

# Nothing ever comes out of this pipe. It is opened once, before there is any trap: bash 5.2 loses a signal
# that arrives while it parses a substitution.
exec {quiet}<> <(:)

# pause SECONDS, without a child process that would be left behind, and hold what this one holds. Keep it
# short: a signal that arrives in the moment before bash begins to wait is seen at the end.
pause() { read -r -t "$1" -u "$quiet" || true; }
