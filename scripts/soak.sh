#!/usr/bin/env bash
# The long forms of tests that ctest runs in a shorter one, with their times judged, too. Ends with a table, and with an
# error if anything failed. All of them but sim, scale and mutations: about two hours and a half on 2 cores, which should have
# nothing else to do.
# Usage: soak.sh [NAME|all]...   (default: all)
#   issue143   1000 callers at once on a step of 100: each case of Leaf's issue #143, a million calls
#   steady     latencies at a steady rate on a slow database and on a quick one
#   neighbour  grants beside a node whose round trips take 1.5 s longer
#   tags       a table of 100 000 tags
#   order      10^6 requests for a strict tag on three nodes that die, stop and are cut off: compared in real time
#   order_galera  the same on a Galera cluster whose nodes are killed, hang and come back
#   refills    thousands of tags drained at once
#   unique     10^8 IDs in batches from two daemons, compared
#   snowflake  the race for snowflake IDs: 10^8 from 4 threads
#   workers    64 nodes at once on virgin ZooKeeper namespaces; a minute without ZooKeeper under load
#   grants     grants as fast as they come over 1000 tags, with either fence: what requests with reserve feel of it
#   codes      2 * 10^5 codes of IDs that follow each other: what statistics see of the order
#   rolling    10^6 requests of wrk on two daemons behind one socket that are restarted in turn: none fails, no ID repeats
#   crowd      10 000 idle and 200 slow connections: what they take from 64 busy ones, and at rest
#   costs      what limits that are never met, and a scrape a second, cost a request
#   abuse      10 minutes of everything a server is not asked for, beside 10 000 idle connections, half of the time beside
#              900 that ask for large batches and read nothing
#   outage     a database that hangs, crashes and is away, for 10 minutes
#   matrix     the table of faults, with 10^8 IDs compared, every call of a program killed once, and outages of 10
#              minutes: about an hour and a half
#   power      the power goes at 5000 moments of each test of power_loss
#   sim        the museum, 10 000 fresh seeds of the simulator on all processors, and clusters in trouble for an hour each
#   scale      simulated clusters of 10, 100 and 1000 nodes with 100 tags for an hour: what they cost the database and ZooKeeper,
#              beside the formula of PERFORMANCE.md
#   fuzz       every parser of outside bytes under libFuzzer, an hour in all; only if it is named
#   model      the reserve and snowflake IDs through every interleaving, with the scenarios that take minutes, too
#   mutations  bugs planted one at a time, each of which the simulator has to catch (scripts/mutations.sh)
#   mutants    150 places of lib/leaf/core and lib/leaf/service changed mechanically: a test has to notice each, or
#              tests/mutations/explained.txt has a reason (scripts/mutants.py); only if it is named
#   upgrade    daemons of the first version (0.1), built from the history, and of this one in one cluster
#   systemd    the package on a machine of its own that systemd runs: killed, restarted, upgraded, misconfigured, purged
#   redis_clients  ioredis and node-redis on the Redis port (their packages come from npm)
#   tarball    the one file for any Linux in bare roots of Debian 12 and 13
#   suites     quickstart, packages and tests in bare roots of Debian 12 and 13, from the last commit: on 12 all that test.sh
#              does, on 13 without sanitizers, and format and tidy are left to 12; hours; only if it is named
#   lintian    what Debian's own check says of the packages: nothing
#   sources    all checks on all sources, and each file compiled for itself; only if it is named
#   sanitizers all black-box tests, not just the selected ones, with the address, undefined and thread sanitizers; only if
#              it is named
#   weather    all of ctest on a machine that is made bad on purpose (scripts/weather.sh); only if it is named
# Environment: LEAFCTL                    the binary (default: built here)
#              LEAFCTL_PRESSURE_CALLS     calls of each case of Leaf's issue #143 (default 1000000)
#              LEAFCTL_PRESSURE_STEADY_S  seconds of each run at a steady rate (default 10)
#              LEAFCTL_PRESSURE_ROUNDS    pairs of such runs, whose medians are compared (default 5)
#              LEAFCTL_PRESSURE_OUTAGE_S  seconds without a database (default 600)
#              LEAFCTL_PRESSURE_IDS       IDs to take in batches and compare (default 100000000)
#              LEAFCTL_ORDER_REQUESTS     requests for a strict tag (default 1000000)
#              LEAFCTL_PRESSURE_REFILLS   tags that are drained at once (default 2000)
#              LEAF_SNOWFLAKE_IDS         IDs of the race (default 100000000)
#              LEAFCTL_GRANTS_S           seconds of each run of grants (default 10)
#              LEAFCTL_GRANTS_ROUNDS      such runs of each kind, whose medians are shown (default 5)
#              LEAFCTL_ROLLING_REQUESTS   requests behind the rolling restart (default 1000000)
#              LEAFCTL_CODES_COUNT        codes of each length that statistics look at (default 200000)
#              LEAFCTL_COST_ROUNDS        pairs of runs of crowd and costs, whose medians are compared (default 5)
#              LEAFCTL_COST_RUN_S         seconds of each such run (default 5)
#              LEAFCTL_CROWD_IDLE         connections of the crowd that are idle (default 10000)
#              LEAFCTL_CROWD_SLOW         connections of the crowd that send a byte a second (default 200)
#              LEAFCTL_ABUSE_S            seconds of abuse (default 600)
#              LEAFCTL_ABUSE_IDLE         connections that are idle meanwhile (default 10000)
#              LEAFCTL_ABUSE_DEAF         connections that read nothing (default 900)
#              LEAFCTL_MATRIX_IDS         IDs that each row of the table compares at least (default 10000000)
#              LEAFCTL_MATRIX_OUTAGE_S    seconds of each of its outages (default 600)
#              LEAFCTL_MATRIX_POINTS      calls of each kind to kill a program at, 0 for all (default 0)
#              LEAFCTL_MATRIX_TABLE       file for the table (default build/fault_matrix.txt)
#              LEAFCTL_POWER_DISKS        moments at which the power goes (default 5000)
#              LEAFCTL_ZK_ROUNDS          virgin namespaces (default 20)
#              LEAFCTL_ZK_OUTAGE_S        seconds without any ZooKeeper server (default 60)
#              LEAFCTL_SUITES             suites of Debian that `suites` tries (default "bookworm trixie")
#              LEAFCTL_SUITE_PRESETS      what is tested on those after bookworm (default release)
#              LEAF_SIM_SEEDS             fresh seeds of the simulator (default 10000)
#              LEAF_SIM_HOURS             simulated hours of trouble beside them (default 20)
#              LEAF_SIM_SEED              the first of the seeds (default: the time)
#              LEAFCTL_FUZZ_S             seconds of fuzzing, over all targets (default 3600)
#              LEAFCTL_PRESSURE_JUDGE     0: print the times, but do not judge them (default 1)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/soak.sh
  exit 0
fi

export LEAFCTL_PRESSURE_CALLS=${LEAFCTL_PRESSURE_CALLS:-1000000}
export LEAFCTL_PRESSURE_STEADY_S=${LEAFCTL_PRESSURE_STEADY_S:-10}
export LEAFCTL_PRESSURE_ROUNDS=${LEAFCTL_PRESSURE_ROUNDS:-5}
export LEAFCTL_PRESSURE_OUTAGE_S=${LEAFCTL_PRESSURE_OUTAGE_S:-600}
export LEAFCTL_PRESSURE_IDS=${LEAFCTL_PRESSURE_IDS:-100000000}
export LEAFCTL_PRESSURE_REFILLS=${LEAFCTL_PRESSURE_REFILLS:-2000}
export LEAFCTL_PRESSURE_JUDGE=${LEAFCTL_PRESSURE_JUDGE:-1}

export LEAFCTL_GRANTS_S=${LEAFCTL_GRANTS_S:-10}
export LEAFCTL_GRANTS_ROUNDS=${LEAFCTL_GRANTS_ROUNDS:-5}
export LEAFCTL_ROLLING_REQUESTS=${LEAFCTL_ROLLING_REQUESTS:-1000000}
export LEAFCTL_CODES_COUNT=${LEAFCTL_CODES_COUNT:-200000}
export LEAFCTL_COST_ROUNDS=${LEAFCTL_COST_ROUNDS:-5}
export LEAFCTL_COST_RUN_S=${LEAFCTL_COST_RUN_S:-5}
export LEAFCTL_CROWD_IDLE=${LEAFCTL_CROWD_IDLE:-10000}
export LEAFCTL_CROWD_SLOW=${LEAFCTL_CROWD_SLOW:-200}
export LEAFCTL_ABUSE_S=${LEAFCTL_ABUSE_S:-600}
export LEAF_SIM_SEEDS=${LEAF_SIM_SEEDS:-10000}
export LEAFCTL_ORDER_REQUESTS=${LEAFCTL_ORDER_REQUESTS:-1000000}
export LEAF_SIM_HOURS=${LEAF_SIM_HOURS:-20}
export LEAFCTL_FUZZ_S=${LEAFCTL_FUZZ_S:-3600}
export LEAFCTL_ZK_ROUNDS=${LEAFCTL_ZK_ROUNDS:-20}
export LEAFCTL_ZK_OUTAGE_S=${LEAFCTL_ZK_OUTAGE_S:-60}
export LEAFCTL_ABUSE_IDLE=${LEAFCTL_ABUSE_IDLE:-10000}
export LEAFCTL_ABUSE_DEAF=${LEAFCTL_ABUSE_DEAF:-900}
export LEAFCTL_MATRIX_IDS=${LEAFCTL_MATRIX_IDS:-10000000}
export LEAFCTL_MATRIX_OUTAGE_S=${LEAFCTL_MATRIX_OUTAGE_S:-600}
export LEAFCTL_MATRIX_POINTS=${LEAFCTL_MATRIX_POINTS:-0}
export LEAFCTL_POWER_DISKS=${LEAFCTL_POWER_DISKS:-5000}
export LEAFCTL_MATRIX_TABLE=${LEAFCTL_MATRIX_TABLE:-$PWD/build/fault_matrix.txt}

names=(issue143 steady neighbour tags order order_galera refills unique snowflake workers grants codes rolling crowd costs abuse outage matrix power sim scale model mutations upgrade systemd redis_clients tarball lintian)

# The file of tests/integration and the tests in it; for snowflake, the unit test; for others, what is run.
tests_of() {
  case $1 in
    issue143) echo test_pressure.py Issue143 ;;
    steady) echo test_pressure.py SteadyRate ;;
    neighbour) echo test_pressure.py SlowNeighbour ;;
    outage) echo test_pressure.py LongOutage ;;
    tags) echo test_pressure.py ManyTags ;;
    order) echo test_strict.py Shared.test_nodes_that_die_and_stop_and_are_cut_off Failover ;;
    order_galera) echo test_galera.py ;;
    refills) echo test_pressure.py ManyRefills ;;
    unique) echo test_pressure.py Batches ;;
    snowflake) echo 'SnowflakeThreads.*' ;;
    workers) echo test_zookeeper.py Claims.test_many_nodes_at_once_on_a_virgin_namespace UnderLoad ;;
    grants) echo test_cluster_fence.py ManyGrants ;;
    codes) echo test_codes.py Statistics ;;
    rolling) echo test_lifecycle.py RollingRestart ;;
    crowd) echo test_limits.py Cost.test_of_a_crowd Idle ;;
    costs) echo test_limits.py Cost.test_of_limits_that_are_never_met Cost.test_of_metrics ;;
    abuse) echo test_limits.py Abuse ;;
    matrix) echo test_fault_matrix.py ;;
    power) echo test_power_loss.py ;;
    fuzz) echo scripts/fuzz.sh ;;
    sim | scale) echo build/release/leafsim ;;
    model) echo build/release/model_tests ;;
    mutations) echo scripts/mutations.sh ;;
    mutants) echo scripts/mutants.py ;;
    upgrade) echo test_mixed_versions.py ;;
    systemd) echo test_booted.py ;;
    redis_clients) echo test_redis_clients.py ;;
    tarball) echo test_packages.py Packages.test_one_file_for_any_linux ;;
    suites) echo test_suites.py ;;
    lintian) echo lintian ;;
    sources) echo scripts/check.sh ;;
    sanitizers) echo ctest ;;
    weather) echo scripts/test.sh ;;
    *) return 1 ;;
  esac
}

if (($# == 0)) || [[ " $* " == *" all "* ]]; then set -- "${names[@]}"; fi
for name in "$@"; do
  tests_of "$name" >/dev/null || die "no test called '$name': ${names[*]} fuzz sources sanitizers mutants weather suites all"
done

apt_need "${test_packages[@]}"
set_cmake_flags
if [[ -z ${LEAFCTL:-} || " $* " == *" snowflake "* || " $* " == *" sim "* || " $* " == *" scale "* || " $* " == *" model "* ]]; then
  cmake --preset release "${cmake_flags[@]}"
  cmake --build --preset release --target leafctl unit_tests leafsim model_tests
  export LEAFCTL=${LEAFCTL:-$PWD/build/release/leafctl}
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LEAF_SNOWFLAKE_IDS=${LEAF_SNOWFLAKE_IDS:-100000000}

# The museum, fresh seeds on all processors, and then some clusters that are in trouble for an hour each.
simulate() {
  local first=${LEAF_SIM_SEED:-$(date +%s)} jobs share runs=() job failed=0
  jobs=$(nproc)
  share=$((LEAF_SIM_SEEDS / jobs + 1))
  echo "sim: $((share * jobs)) seeds from $first on, and $((LEAF_SIM_HOURS)) hours of clusters"
  "$1" --quiet --seeds 10 --scenario tests/sim/museum/*.toml || failed=1
  for ((job = 0; job < jobs; job++)); do
    { "$1" --quiet --seed $((first + job * share)) --seeds "$share" &&
      "$1" --quiet --seed $((first + job)) --seeds $((LEAF_SIM_HOURS / jobs + 1)) --hours 1; } &
    runs+=($!)
  done
  for job in "${runs[@]}"; do wait "$job" || failed=1; done
  return "$failed"
}

# Whole files of black-box tests, as a release run sees them, with each sanitizer.
sanitize() {
  local preset failed=0
  for preset in asan-ubsan tsan; do
    cmake --preset "$preset" -DLEAF_SANITIZE_ALL=ON "${cmake_flags[@]}" && cmake --build --preset "$preset" || return
    as_in_gate ctest --test-dir "build/$preset" --output-on-failure --timeout 3600 -j "$(nproc)" -L 'integration|cli' ||
      failed=1
    cmake --preset "$preset" -DLEAF_SANITIZE_ALL=OFF "${cmake_flags[@]}"
  done
  return "$failed"
}

# Every file for itself: what it forgot to include is hidden in the builds that compile several at once.
check_sources() {
  cmake --preset release -B build/single -DLEAF_UNITY=OFF "${cmake_flags[@]}" && cmake --build build/single &&
    scripts/check.sh
}

# The last commit of the first version.
first_version=23bcb635c1c6dc307479e9b8b5388b6f4e479eda

# Builds the first version as build/first/leafctl.
build_first() {
  git cat-file -e "$first_version^{commit}" || die "upgrade needs the history of the repository: git fetch --unshallow"
  mkdir -p build/first/source
  git archive "$first_version" | tar -x -C build/first/source
  (cd build/first/source && cmake --preset release && cmake --build --preset release --target leafctl)
  cp build/first/source/build/release/leafctl build/first/leafctl
}

# Runs a command without what is exported here for the long forms.
as_in_gate() {
  local name without=()
  for name in "${!LEAFCTL_@}" LEAF_SIM_SEEDS LEAF_SIM_HOURS LEAF_SNOWFLAKE_IDS; do without+=(-u "$name"); done
  env "${without[@]}" "$@"
}

# Runs the long form of one name.
run() {
  local tests
  read -ra tests <<<"$(tests_of "$1")"
  if [[ $1 == snowflake ]]; then
    build/release/unit_tests --gtest_filter="${tests[0]}"
  elif [[ $1 == model || $1 == mutations || $1 == mutants ]]; then
    "${tests[0]}"
  elif [[ $1 == upgrade ]]; then
    build_first && LEAFCTL_FIRST=build/first/leafctl python3 "tests/integration/${tests[0]}"
  elif [[ $1 == systemd ]]; then
    # All that is packaged.
    cmake --preset release "${cmake_flags[@]}" && cmake --build --preset release &&
      as_root env LEAFCTL=build/release/leafctl python3 "tests/integration/${tests[0]}"
  elif [[ $1 == tarball ]]; then
    cmake --preset release "${cmake_flags[@]}" && cmake --build --preset release &&
      as_root env LEAFCTL_TARBALL_SUITES="bookworm trixie" python3 "tests/integration/${tests[0]}" "${tests[@]:1}"
  elif [[ $1 == redis_clients ]]; then
    { command -v npm >/dev/null || apt_need npm; } &&
      npm install --prefix "$scratch/node" --no-save --no-audit --no-fund --silent ioredis redis &&
      LEAFCTL_TEST_NODE_MODULES=$scratch/node/node_modules python3 "tests/integration/${tests[0]}"
  elif [[ $1 == suites ]]; then
    # Its steps have a deadline of their own, which is hours.
    as_root env LEAFCTL_SUITES="${LEAFCTL_SUITES:-}" LEAFCTL_SUITE_PRESETS="${LEAFCTL_SUITE_PRESETS:-}" \
      LEAFCTL_TEST_HANGS_S=86400 python3 "tests/integration/${tests[0]}"
  elif [[ $1 == lintian ]]; then
    apt_need lintian
    scripts/package.sh && lintian --allow-root --fail-on error,warning --tag-display-limit 0 build/packages/*.deb
  elif [[ $1 == sources ]]; then
    check_sources
  elif [[ $1 == sanitizers ]]; then
    sanitize
  elif [[ $1 == weather ]]; then
    # Everything takes many times as long, and only a hang may reach a deadline.
    as_in_gate env LEAF_TEST_WITH=scripts/weather.sh LEAF_TEST_TIMEOUT=14400 LEAFCTL_TEST_HANGS_S=14000 scripts/test.sh
  elif [[ $1 == sim ]]; then
    simulate "${tests[0]}"
  elif [[ $1 == scale ]]; then
    tests/sim/scale.py "${tests[0]}" --nodes 10,100,1000 --hours 1
  elif [[ $1 == fuzz ]]; then
    local targets jobs
    targets=$(find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -type d | wc -l)
    jobs=$(nproc)
    LEAFCTL_FUZZ_JOBS=$jobs "${tests[0]}" all $((LEAFCTL_FUZZ_S * jobs / targets + 1))
  else
    python3 "tests/integration/${tests[0]}" "${tests[@]:1}"
  fi
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
  while IFS= read -r line; do table+=("           $line"); done < <(sed -nE 's/.*(pressure|order|codes|lifecycle|limits|fence|leafsim|suites): //p' "$scratch/log")
  if [[ $name == matrix && -f $LEAFCTL_MATRIX_TABLE ]]; then
    while IFS= read -r line; do table+=("           $line"); done <"$LEAFCTL_MATRIX_TABLE"
  fi
done

echo
echo "== summary"
printf '%s\n' "${table[@]}"
if ((${#failed[@]} > 0)); then
  echo "soak.sh: failed: ${failed[*]}" >&2
  exit 1
fi
