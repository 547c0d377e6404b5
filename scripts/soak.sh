#!/usr/bin/env bash
# The long forms of tests/integration/test_pressure.py, with the times judged, too, and of the snowflake generator's own
# race (10^8 IDs from 4 threads), a rolling restart behind 10^6 requests, 10 minutes of abuse by 10 000 connections, 64 nodes
# at once on 20 virgin ZooKeeper namespaces and a minute without ZooKeeper under load: about 50 minutes on 2 cores. Ends with a table, and with an error if anything failed.
# Usage: soak.sh [issue143|steady|outage|tags|refills|unique|snowflake|workers|rolling|abuse|all]...   (default: all)
# Environment: LEAFCTL                    the binary (default: built here)
#              LEAFCTL_PRESSURE_CALLS     calls of each case of Leaf's issue #143 (default 1000000)
#              LEAFCTL_PRESSURE_STEADY_S  seconds of each run at a steady rate (default 10)
#              LEAFCTL_PRESSURE_ROUNDS    pairs of such runs, whose medians are compared (default 5)
#              LEAFCTL_PRESSURE_OUTAGE_S  seconds without a database (default 600)
#              LEAFCTL_PRESSURE_IDS       IDs to take in batches and compare (default 100000000)
#              LEAFCTL_ROLLING_REQUESTS   requests behind the rolling restart (default 1000000)
#              LEAFCTL_ABUSE_S            seconds of abuse (default 600)
#              LEAFCTL_ABUSE_IDLE         connections that are idle meanwhile (default 10000)
#              LEAFCTL_ZK_ROUNDS          virgin namespaces (default 20)
#              LEAFCTL_ZK_OUTAGE_S        seconds without any ZooKeeper server (default 60)
#              LEAFCTL_PRESSURE_JUDGE     0: print the times, but do not judge them (default 1)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

export LEAFCTL_PRESSURE_CALLS=${LEAFCTL_PRESSURE_CALLS:-1000000}
export LEAFCTL_PRESSURE_STEADY_S=${LEAFCTL_PRESSURE_STEADY_S:-10}
export LEAFCTL_PRESSURE_ROUNDS=${LEAFCTL_PRESSURE_ROUNDS:-5}
export LEAFCTL_PRESSURE_OUTAGE_S=${LEAFCTL_PRESSURE_OUTAGE_S:-600}
export LEAFCTL_PRESSURE_IDS=${LEAFCTL_PRESSURE_IDS:-100000000}
export LEAFCTL_PRESSURE_JUDGE=${LEAFCTL_PRESSURE_JUDGE:-1}

export LEAFCTL_ROLLING_REQUESTS=${LEAFCTL_ROLLING_REQUESTS:-1000000}
export LEAFCTL_ABUSE_S=${LEAFCTL_ABUSE_S:-600}
export LEAFCTL_ZK_ROUNDS=${LEAFCTL_ZK_ROUNDS:-20}
export LEAFCTL_ZK_OUTAGE_S=${LEAFCTL_ZK_OUTAGE_S:-60}
export LEAFCTL_ABUSE_IDLE=${LEAFCTL_ABUSE_IDLE:-10000}

# The class of test_pressure.py (workers: test_zookeeper.py; rolling: test_lifecycle.py; abuse: test_limits.py); for snowflake, the unit test.
class_of() {
  case $1 in
    issue143) echo Issue143 ;;
    steady) echo SteadyRate ;;
    outage) echo LongOutage ;;
    tags) echo ManyTags ;;
    refills) echo ManyRefills ;;
    unique) echo Batches ;;
    snowflake) echo 'SnowflakeThreads.*' ;;
    workers) echo Claims.test_many_nodes_at_once_on_a_virgin_namespace UnderLoad ;;
    rolling) echo RollingRestart ;;
    abuse) echo Abuse ;;
    *) return 1 ;;
  esac
}

if (($# == 0)) || [[ " $* " == *" all "* ]]; then set -- issue143 steady tags refills unique snowflake workers rolling abuse outage; fi
for name in "$@"; do
  class_of "$name" >/dev/null || die "no test called '$name': issue143, steady, outage, tags, refills, unique, snowflake, workers, rolling, abuse, all"
done

apt_need "${test_packages[@]}" nghttp2-client
if [[ -z ${LEAFCTL:-} || " $* " == *" snowflake "* ]]; then
  set_cmake_flags
  cmake --preset release "${cmake_flags[@]}"
  cmake --build --preset release --target leafctl unit_tests
  export LEAFCTL=${LEAFCTL:-$PWD/build/release/leafctl}
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LEAF_SNOWFLAKE_IDS=${LEAF_SNOWFLAKE_IDS:-100000000}

# Runs the long form of one name.
run() {
  case $1 in
    snowflake) build/release/unit_tests --gtest_filter="$(class_of "$1")" ;;
    workers)
      read -ra classes <<<"$(class_of "$1")"
      python3 tests/integration/test_zookeeper.py "${classes[@]}"
      ;;
    rolling) python3 tests/integration/test_lifecycle.py "$(class_of "$1")" ;;
    abuse) python3 tests/integration/test_limits.py "$(class_of "$1")" ;;
    *) python3 tests/integration/test_pressure.py "$(class_of "$1")" ;;
  esac
}

# A build beside it changes nothing in a run that takes so long.
cp "$LEAFCTL" "$scratch/leafctl"
LEAFCTL=$scratch/leafctl

table=() failed=()
for name in "$@"; do
  echo
  echo "== $name"
  started=$SECONDS
  result=OK
  # Both streams: the figures come on one, the verdicts on the other.
  if ! run "$name" 2>&1 | tee "$scratch/log"; then
    result=FAILED
    failed+=("$name")
  fi
  table+=("$(printf '%-10s %-7s %6d s' "$name" "$result" $((SECONDS - started)))")
  while IFS= read -r line; do table+=("           $line"); done < <(sed -nE 's/.*(pressure|lifecycle|limits): //p' "$scratch/log")
done

echo
echo "== summary"
printf '%s\n' "${table[@]}"
if ((${#failed[@]} > 0)); then
  echo "soak.sh: failed: ${failed[*]}" >&2
  exit 1
fi
