#!/usr/bin/env bash
# Which lines of the algorithms the unit tests reach. Builds with gcc's counters (build/coverage), runs the unit and
# contract tests that need no server, and the library's test of decode and encode. Prints the coverage of each file of
# lib/leaf/core, and of lib/leaf/service for information, with the lines and branches that are never reached. Fails
# below 99 % of the lines of lib/leaf/core.
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
cmake --build --preset coverage --target unit_tests library_tests failpoint_tests contract_tests

build=$PWD/build/coverage
# Counts of an earlier run would hide what this one does not reach.
find "$build" -name '*.gcda' -delete
# To count makes threads slow; the race for IDs reaches the same with fewer of them.
LEAF_SNOWFLAKE_IDS=400000 "$build/unit_tests" --gtest_brief=1
"$build/library_tests" --gtest_brief=1 --gtest_filter='Library.DecodeAndEncode'
"$build/failpoint_tests" --gtest_brief=1
"$build/contract_tests" --gtest_brief=1 --gtest_filter='-MariaDb*:ZooKeeper*'

# The counters are read once; branches that only an exception takes are not the program's.
gcovr --root . --object-directory "$build" -j "$(nproc)" --exclude-throw-branches --exclude-unreachable-branches \
  --filter 'lib/leaf/(core|service)/' --json --output "$build/coverage.json" "$build/lib/leaf" "$build/tests"
report() { gcovr --root . --add-tracefile "$build/coverage.json" "$@"; }

echo
echo "== lib/leaf/service: lines (for information)"
report --filter 'lib/leaf/service/'
echo
echo "== lib/leaf/core: branches"
report --filter 'lib/leaf/core/' --branches
echo
echo "== lib/leaf/core: never reached"
python3 - "$build/coverage.json" <<'PYTHON'
import json
import re
import sys

# What a program chooses by. On any other line the compiler counts how a call may be left.
CHOICE = re.compile(r"\b(if|while|for|case|do)\b|&&|\|\||\?|std::(min|max|clamp)\(")

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
lines, branches, checks = [], [], []
for entry in report["files"]:
    if not entry["file"].startswith("lib/leaf/core/"):
        continue
    with open(entry["file"], encoding="utf-8") as file:
        text = file.read().splitlines()
    for line in entry["lines"]:
        code = text[line["line_number"] - 1].strip()
        # A failpoint is in the tests only.
        if line.get("gcovr/noncode") or code.startswith("LEAF_FAILPOINT("):
            continue
        where = "%s:%d: " % (entry["file"], line["line_number"])
        missed = sum(branch["count"] == 0 for branch in line["branches"])
        if line["count"] == 0:
            lines.append(where + code)
        elif missed > 0 and code.startswith("LEAF_CHECK("):
            checks.append(where + code)
        elif missed > 0 and CHOICE.search(code):
            branches.append("%s(%d of %d) %s" % (where, missed, len(line["branches"]), code))
for title, found in (
    ("lines", lines),
    ("branches (so many of those of the line)", branches),
    # Where one does fail, the process ends, and its counts with it.
    ("assertions, which hold", checks),
):
    print("-- %s: %s" % (title, len(found) or "none"))
    for each in found:
        print("   " + each)
PYTHON
echo
echo "== lib/leaf/core: lines"
report --filter 'lib/leaf/core/' --fail-under-line 99
