#!/usr/bin/env bash
# Measures leafctl side by side with its yardsticks: nginx with a constant answer, Redis, MariaDB, a bare fetch_add.
# Builds release, runs each row of ours and of theirs in turn, and prints medians and their ratios; PERFORMANCE.md says
# what they mean. Ends with an error if a row has no figures, never because of what they are.
# Usage: bench.sh [ROW...] [--rounds N] [--seconds S] [--smoke] [--json FILE] [--compare FILE] [--list]
#        bench.sh counts [--accept] [--list]
#        bench.sh keys [--rows N] [--pool MIB] [--only innodb|sqlite] [--json FILE]
#   ROW             a row, or the beginning of some, as in http (default: all, about 15 minutes)
#   --rounds N      rounds of which the medians are taken (default 5)
#   --seconds S     how long one measurement takes, roughly (default 5)
#   --smoke         each row for a moment, to see that it still works; the figures mean nothing
#   --json FILE     where to write the figures (default build/bench.json)
#   --compare FILE  figures of an earlier run; their ratios are put beside
#   --list          names the rows, and ends
#   counts          counts instructions, system calls, page faults, flushes and messages, and compares them with
#                   tests/bench/counts.txt: ends with an error if a row has moved by more than 2 %
#   --accept        writes to that file what was counted
#   keys            which ID is best for the key of a table: rows inserted under keys of each kind
#   --rows N        rows of each table (default 300000)
#   --pool MIB      memory for pages, which the tables are to be larger than (default 16)
#   --only ENGINE   InnoDB or SQLite alone
# Environment: LEAFCTL  the binary (default: built here); segment_bench, snowflake_bench and counted are taken from beside it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/scripts/lib.sh"

for argument in "$@"; do
  if [[ $argument == --help || $argument == -h ]]; then
    sed -nE '2,/^[^#]/s/^# ?//p' "${BASH_SOURCE[0]}"
    exit 0
  fi
done

if [[ -z ${LEAFCTL:-} && " $* " != *" --list "* ]]; then
  apt_need "${test_packages[@]}"
  set_cmake_flags
  (
    cd "$here"
    cmake --preset release -DLEAF_BUILD_TESTS=ON "${cmake_flags[@]}"
    cmake --build --preset release --target leafctl segment_bench snowflake_bench counted
  ) >&2
fi
if [[ ${1:-} == counts ]]; then
  shift
  export LEAFCTL=${LEAFCTL:-$here/build/release/leafctl}
  exec python3 "$here/tests/bench/counts.py" "$@"
fi
if [[ ${1:-} == keys ]]; then
  shift
  export LEAFCTL=${LEAFCTL:-$here/build/release/leafctl}
  exec python3 "$here/tests/bench/keys.py" "$@"
fi
exec python3 "$here/tests/bench/bench.py" "$@"
