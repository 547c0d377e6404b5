#!/usr/bin/env bash
# Fuzzes the parsers of outside bytes with libFuzzer (clang, address and undefined-behaviour sanitizers): tests/fuzz.
# Ends with a table, and with an error if anything was found. What was found is in build/fuzz/findings, each file one
# input; build/fuzz/fuzz_TARGET FILE runs it again. Inputs that reach new code are kept in build/fuzz/corpus for the next
# run; a few that are worth it belong in tests/fuzz/corpus, which every test run goes through.
# Usage: fuzz.sh [TARGET|all] [SECONDS]   (default: all, 60 seconds each)
# Environment: LEAFCTL_FUZZ_JOBS  targets at once (default: 1 for each core)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/fuzz.sh
  exit 0
fi
target=${1:-all}
export seconds=${2:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "'$seconds' is no number of seconds"

apt_need "${test_packages[@]}" clang
set_cmake_flags
cmake --preset fuzz "${cmake_flags[@]}"
cmake --build --preset fuzz

export build=$PWD/build/fuzz seeds=$PWD/tests/fuzz/corpus
mapfile -t targets < <("$build/fuzz_corpus" --list)
if [[ $target != all ]]; then
  [[ " ${targets[*]} " == *" $target "* ]] || die "no target called '$target': ${targets[*]}"
  targets=("$target")
fi
mkdir -p "$build/findings" "$build/logs"

# Runs one target for its time.
fuzz_one() {
  local name=$1 code=0
  mkdir -p "$build/corpus/$name"
  "$build/fuzz_corpus" --dictionary "$name" >"$build/corpus/$name.dict"
  "$build/fuzz_$name" -max_total_time="$seconds" -max_len=4096 -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 \
    -dict="$build/corpus/$name.dict" -artifact_prefix="$build/findings/$name-" \
    "$build/corpus/$name" "$seeds/$name" >"$build/logs/$name" 2>&1 || code=$?
  printf '%-17s %-7s %12s runs\n' "$name" "$( ((code == 0)) && echo OK || echo FOUND)" \
    "$(sed -nE 's/^stat::number_of_executed_units: *//p' "$build/logs/$name")"
  if ((code != 0)); then
    # What broke, and where the input is.
    grep -E 'broken invariant|Assertion|runtime error|ERROR: |SUMMARY: |Test unit written' "$build/logs/$name" || true
  fi
  return "$code"
}
export -f fuzz_one

failed=0
printf '%s\n' "${targets[@]}" |
  xargs -P "${LEAFCTL_FUZZ_JOBS:-$(nproc)}" -I{} bash -c 'fuzz_one {} || exit 1' || failed=1
if ((failed)); then die "findings in build/fuzz/findings, logs in build/fuzz/logs"; fi
