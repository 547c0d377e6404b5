#!/usr/bin/env bash
# Ends what dev_up.sh started in DIR and removes DIR.
# Usage: dev_down.sh DIR
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/lib.sh"

stop_seconds=30  # longest wait for a server to end by itself

(($# == 1)) || die "usage: dev_down.sh DIR"
[[ -e $1/.leaf-dev ]] || die "$1 was not made by dev_up.sh"
dir=$(cd "$1" && pwd -P)

# The process is one of ours, and not another that got its number since: its command line names the folder.
is_ours() { tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | grep -qF "$dir/"; }

code=0
mapfile -t pids < <(sed -nE 's/^LEAF_(MYSQL|ZK)_PID=([0-9]+)$/\2/p' "$dir/env")
for pid in "${pids[@]}"; do
  if is_ours "$pid"; then kill -TERM "$pid" 2>/dev/null || true; fi
done
for pid in "${pids[@]}"; do
  end=$((SECONDS + stop_seconds))
  while is_ours "$pid"; do
    if ((SECONDS >= end)); then
      echo "dev_down.sh: process $pid does not end; killing it" >&2
      kill -KILL "$pid" 2>/dev/null || true
      end=$((SECONDS + stop_seconds))
      code=1
    fi
    sleep 0.05
  done
done
rm -rf --one-file-system "$dir"
echo "stopped, $dir removed"
exit "$code"
