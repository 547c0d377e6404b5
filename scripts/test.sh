#!/usr/bin/env bash
# Installs what the tests need, builds with and without sanitizers, checks the sources and runs every test. Ends with
# ctest's summary; at once, with a line for each thing that is missing, where that cannot pass (preflight.sh).
# Environment: LEAF_TEST_PRESETS  the presets to build and test (default "release asan-ubsan tsan")
#              LEAF_TEST_JOBS     tests at once (default 3 for each processor: most of them wait)
#              LEAF_TEST_TIMEOUT  seconds after which a test is ended, as only a hang can take so long (default 1200)
#              LEAF_TEST_WITH     a command that ctest is run by (default: none)
#              LEAF_SIM_SEED      the first fresh seed of the simulator (default: the time)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

# What each step took, and how busy it kept the processors, for the table before the summary.
phases=build/phases.txt
phase() {
  local name=$1 started=$EPOCHREALTIME before after
  shift
  before=$(head -n 1 /proc/stat)
  "$@"
  after=$(head -n 1 /proc/stat)
  # cpu, user, nice, system, idle, waiting for a disk, ...
  awk -v name="$name" -v seconds="$started $EPOCHREALTIME" -v times="$before $after" 'BEGIN {
    split(seconds, second)
    fields = split(times, time) / 2
    for (i = 2; i <= 9; i++) {
      spent = time[fields + i] - time[i]
      all += spent
      if (i != 5 && i != 6) busy += spent
    }
    printf "%s\t%.1f\t%.0f\n", name, second[2] - second[1], (all ? 100 * busy / all : 0)
  }' >>"$phases"
}

build_preset() {
  echo "== $1"
  # Stated, because quickstart.sh leaves it off in the same build folder.
  cmake --preset "$1" -DLEAF_BUILD_TESTS=ON "${cmake_flags[@]}"
  cmake --build --preset "$1"
}

scripts/preflight.sh
mkdir -p build/all
: >"$phases"
phase install apt_need "${test_packages[@]}"
set_cmake_flags

read -ra presets <<<"${LEAF_TEST_PRESETS:-release asan-ubsan tsan}"
for preset in "${presets[@]}"; do phase "build $preset" build_preset "$preset"; done

# One ctest over all of them. The check of the sources comes first, since it takes long.
{
  for preset in "${presets[@]}"; do echo "subdirs(\"../$preset\")"; done
  echo "add_test(check \"/bin/bash\" \"$PWD/scripts/check.sh\" --changed)"
  echo "set_tests_properties(check PROPERTIES TIMEOUT 2700 PROCESSORS 2 COST 1000000)"
} >build/all/CTestTestfile.cmake
# Seeds of the simulator that no run has had before.
export LEAF_SIM_SEED=${LEAF_SIM_SEED:-$(date +%s)}
jobs=${LEAF_TEST_JOBS:-$((3 * $(nproc)))}
echo "== tests, $jobs at once (fresh seeds of the simulator: from $LEAF_SIM_SEED on)"
read -ra with <<<"${LEAF_TEST_WITH:-}"
"${with[@]}" ctest --test-dir build/all --output-on-failure --timeout "${LEAF_TEST_TIMEOUT:-1200}" -j "$jobs" 2>&1 |
  scripts/ctest_report.py --test-dir build/all --phases "$phases" --table build/test_times.txt
