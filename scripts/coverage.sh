#!/usr/bin/env bash
# Which lines of the algorithms the unit tests reach. Builds with gcc's counters (build/coverage), runs the unit and
# contract tests that need no server, and prints the coverage of each file of lib/leaf/core, and of lib/leaf/service for
# information, with the lines and branches that are never reached. Fails below 95 % of the lines of lib/leaf/core.
# Usage: coverage.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if (($# > 0)); then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/coverage.sh
  exit 0
fi

apt_need "${test_packages[@]}" gcovr
set_cmake_flags
cmake --preset coverage "${cmake_flags[@]}"
cmake --build --preset coverage --target unit_tests failpoint_tests contract_tests

build=$PWD/build/coverage
# Counts of an earlier run would hide what this one does not reach.
find "$build" -name '*.gcda' -delete
"$build/unit_tests" --gtest_brief=1
"$build/failpoint_tests" --gtest_brief=1
"$build/contract_tests" --gtest_brief=1 --gtest_filter='-MariaDb*:ZooKeeper*'

# Branches that only an exception takes are not the program's.
report() {
  gcovr --root . --object-directory "$build" --exclude-throw-branches --exclude-unreachable-branches "$@" \
    "$build/lib/leaf" "$build/tests"
}
echo
echo "== lib/leaf/service (for information)"
report --filter 'lib/leaf/service/'
echo
echo "== lib/leaf/core: branches"
report --filter 'lib/leaf/core/' --branches
echo
echo "== lib/leaf/core: never reached"
report --filter 'lib/leaf/core/' --json --output "$build/core.json"
python3 - "$build/core.json" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
for entry in report["files"]:
    with open(entry["file"], encoding="utf-8") as file:
        text = file.read().splitlines()
    for line in entry["lines"]:
        number = line["line_number"]
        if line.get("gcovr/noncode"):
            continue
        if line["count"] == 0:
            print("%s:%d: line: %s" % (entry["file"], number, text[number - 1].strip()))
        elif any(branch["count"] == 0 for branch in line["branches"]):
            print("%s:%d: branch: %s" % (entry["file"], number, text[number - 1].strip()))
PYTHON
echo
echo "== lib/leaf/core: lines"
report --filter 'lib/leaf/core/' --fail-under-line 95
