#!/usr/bin/env bash
# Runs a command with a private MariaDB: LEAF_MYSQL_PORT, LEAF_MYSQL_PASSWORD_FILE and so on are set for it.
# If it fails, the end of the server's log is shown.
# Usage: with_mariadb.sh COMMAND [ARG...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=$(mktemp -d)
trap '"$here/scripts/dev_down.sh" "$dir" >/dev/null' EXIT
"$here/scripts/dev_up.sh" --dir "$dir" --only mariadb --no-flush >/dev/null
set -a
# shellcheck source=/dev/null
. "$dir/env"
set +a
code=0
"$@" || code=$?
if ((code != 0)); then
  echo "---- the end of the log of mariadbd:"
  tail -n 40 "$dir/mysql/log" || true
fi
exit "$code"
