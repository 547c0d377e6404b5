#!/usr/bin/env bash
# Installs what the tests need, builds with and without sanitizers, checks the sources and runs every test. Ends with
# ctest's summary; at once, with a line for each thing that is missing, where that cannot pass (preflight.sh).
# Environment: LEAF_TEST_PRESETS  the presets to build and test (default "release asan-ubsan tsan")
#              LEAF_TEST_JOBS     tests at once (default 2)
#              LEAF_SIM_SEED      the first fresh seed of the simulator (default: the time)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

scripts/preflight.sh
apt_need "${test_packages[@]}"
set_cmake_flags

read -ra presets <<<"${LEAF_TEST_PRESETS:-release asan-ubsan tsan}"
for preset in "${presets[@]}"; do
  echo "== $preset"
  # Stated, because quickstart.sh leaves it off in the same build folder.
  cmake --preset "$preset" -DLEAF_BUILD_TESTS=ON "${cmake_flags[@]}"
  cmake --build --preset "$preset"
done

# One ctest over all of them. The check of the sources comes first and has the machine to itself.
mkdir -p build/all
{
  for preset in "${presets[@]}"; do echo "subdirs(\"../$preset\")"; done
  echo "add_test(check \"/bin/bash\" \"$PWD/scripts/check.sh\")"
  echo "set_tests_properties(check PROPERTIES TIMEOUT 1800 PROCESSORS 2 COST 1000000)"
} >build/all/CTestTestfile.cmake
# Seeds of the simulator that no run has had before.
export LEAF_SIM_SEED=${LEAF_SIM_SEED:-$(date +%s)}
echo "== tests (fresh seeds of the simulator: from $LEAF_SIM_SEED on)"
exec ctest --test-dir build/all --output-on-failure --timeout 1200 -j "${LEAF_TEST_JOBS:-2}"
