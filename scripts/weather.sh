#!/usr/bin/env bash
# Runs a command on a machine that is made bad on purpose: eight busy processes beside it, a disk that takes 10 to 70 ms
# for each fsync and fdatasync and now and then 0.4 to 1.3 s (tests/support/slow_disk.c), and all memory but a part in
# use. Ends with the command's exit code.
# Usage: weather.sh COMMAND [ARG...]
# Environment: LEAF_WEATHER_BUSY    busy processes (default 8)
#              LEAF_WEATHER_MEMORY  MB of memory that stay available (default 5000)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/scripts/lib.sh"

if (($# == 0)) || [[ $1 == --help || $1 == -h ]]; then
  sed -nE '2,/^[^#]/s/^# ?//p' "$here/scripts/weather.sh"
  exit $(($# == 0 ? 2 : 0))
fi

# Every user can read it there, and no test puts a file system of its own over it.
scratch=$(mktemp -d /var/tmp/leafctl-weather-XXXXXX)
beside=()
# Called by trap.
# shellcheck disable=SC2317
cleanup() {
  if ((${#beside[@]} > 0)); then kill -TERM "${beside[@]}" 2>/dev/null || :; fi
  rm -rf "$scratch"
}
trap cleanup EXIT
chmod 755 "$scratch"
gcc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -o "$scratch/slow_disk.so" "$here/tests/support/slow_disk.c" -ldl

# First, since it would take minutes beside the busy ones.
python3 - "${LEAF_WEATHER_MEMORY:-5000}" >"$scratch/memory" <<'PYTHON' &
import contextlib, mmap, signal, sys
with open("/proc/meminfo", encoding="ascii") as file:
    available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) // 1024
block = b"leaf" * (4 << 20)
blocks = max(1, (available - int(sys.argv[1])) // (len(block) >> 20))
held = mmap.mmap(-1, blocks * len(block))
# A page of 4 KB at a time, this would take minutes on some virtual machines.
with contextlib.suppress(OSError):
    held.madvise(mmap.MADV_HUGEPAGE)
for number in range(blocks):
    held[number * len(block) : (number + 1) * len(block)] = block
print("%d MB" % (len(held) >> 20), flush=True)
signal.pause()
PYTHON
beside+=($!)
until [[ -s $scratch/memory ]]; do
  kill -0 "${beside[-1]}" 2>/dev/null || die "the memory could not be filled"
  sleep 0.2
done
for ((i = 0; i < ${LEAF_WEATHER_BUSY:-8}; i++)); do
  (while :; do :; done) &
  beside+=($!)
done
echo "weather.sh: ${#beside[@]} processes beside it, one of which holds $(<"$scratch/memory")" >&2

LD_PRELOAD=$scratch/slow_disk.so "$@"
