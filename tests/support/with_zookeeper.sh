#!/usr/bin/env bash
# Runs a command with a private ZooKeeper: LEAF_ZK_CONNECT is set for it.
# If it fails, the end of the server's log is shown.
# Usage: with_zookeeper.sh COMMAND [ARG...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=$(mktemp -d)
trap '"$here/scripts/dev_down.sh" "$dir" >/dev/null' EXIT
"$here/scripts/dev_up.sh" --dir "$dir" --only zookeeper >/dev/null
set -a
# shellcheck source=/dev/null
. "$dir/env"
set +a
code=0
"$@" || code=$?
if ((code != 0)); then
  echo "---- the end of the log of ZooKeeper:"
  tail -n 40 "$dir/zookeeper/log" || true
fi
exit "$code"
