#!/usr/bin/env bash
# Plants known bugs in the code, one at a time, and sees to it that the simulator catches each: what it cannot find it
# cannot vouch for either. The bugs are tests/mutations/NAME.patch; each says what it breaks and how many seeds it may
# take, which was fixed before it was counted. First the code as it is has to be clean on the same seeds. A bug of what
# the simulator does not run, such as the files of a state directory, names the file of black-box tests that takes its
# place ("test: integration/test_power_loss.py").
# Usage: mutations.sh [NAME...]   (default: all)   a table, and an error if one survives; a minute each without ccache
#        mutations.sh check       only whether each still applies, and says what it has to
# Environment: LEAF_MUTATIONS_SEED  the first seed (default 1)
#              LEAF_MUTATIONS_DIR   where it builds; kept, so that the next run is quicker (default build/mutations)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/mutations.sh
  exit 0
fi

root=$PWD
folder=tests/mutations
scratch=${LEAF_MUTATIONS_DIR:-$root/build/mutations}
first=${LEAF_MUTATIONS_SEED:-1}
# One run that takes longer does not end at all.
patience=900

# A line "key: value" of a patch's header; nothing if there is none.
field() { sed -nE "/^diff /q; s/^$1: *//p" "$folder/$2.patch"; }

# Does not look for a repository: paths are those of the folder it stands in.
apply() { GIT_CEILING_DIRECTORIES=$(dirname "$PWD") GIT_DIR=/nonexistent git apply "$@"; }

all_names() {
  local patch
  for patch in "$folder"/*.patch; do basename "$patch" .patch; done
}

# Whether one patch applies and has a header; says what is wrong with it.
check_one() {
  local name=$1 problem='' seeds scenario test
  seeds=$(field seeds "$name")
  scenario=$(field scenario "$name")
  test=$(field test "$name")
  if [[ ! $name =~ ^[0-9]{2,3}-[a-z0-9-]+$ ]]; then problem="its name is not NN-what-it-is, or NNN"; fi
  if [[ -z $(field breaks "$name") ]]; then problem="no line 'breaks: '"; fi
  if [[ ! $(field promise "$name") =~ ^(P[1-9]|access)(,\ (P[1-9]|access))*$ ]]; then
    problem="no line 'promise: P1..P9 or access'"
  fi
  if [[ ! $seeds =~ ^[1-9][0-9]*$ ]] || ((seeds > 300)); then problem="no line 'seeds: 1..300'"; fi
  if [[ -n $scenario && ! -f $scenario ]]; then problem="no file $scenario"; fi
  if [[ -n $test && ! -f tests/$test ]]; then problem="no file tests/$test"; fi
  if grep -E '^(---|\+\+\+) ' "$folder/$name.patch" | grep -qvE '^(---|\+\+\+) [ab]/lib/leaf/'; then
    problem="it changes something else than lib/leaf"
  fi
  if [[ -z $problem ]] && ! apply --check "$folder/$name.patch"; then problem="it does not apply"; fi
  if [[ -z $problem ]]; then return 0; fi
  echo "mutations.sh: $name: $problem" >&2
  return 1
}

if (($# == 0)); then
  mapfile -t names < <(all_names)
elif [[ $* == check ]]; then
  mapfile -t names < <(all_names)
  result=0
  for name in "${names[@]}"; do check_one "$name" || result=1; done
  if ((${#names[@]} == 0)); then die "no mutations in $folder"; fi
  if ((result == 0)); then echo "${#names[@]} mutations apply"; fi
  exit "$result"
else
  names=()
  for name in "$@"; do
    if [[ ! -f $folder/$name.patch ]]; then die "no mutation called '$name' in $folder"; fi
    names+=("$name")
  done
fi
for name in "${names[@]}"; do check_one "$name"; done

# ---- building --------------------------------------------------------------------------------------------------

# What differs is copied, so that little is compiled again. Whatever an interrupted run has left planted differs, too.
copy_sources() {
  local file
  while IFS= read -r -d '' file; do
    if cmp -s "$file" "$scratch/$file"; then continue; fi
    mkdir -p "$scratch/${file%/*}"
    cp "$file" "$scratch/$file"
  done < <(find ./CMakeLists.txt ./CMakePresets.json lib cmd config man tests -type f -print0)
}

# The simulator, or the binary for a file of black-box tests.
build() (
  cd "$scratch"
  local target=leafsim
  if [[ -n $1 ]]; then target=leafctl; fi
  cmake --build --preset release --target "$target" >build.log 2>&1 || {
    tail -n 30 build.log >&2
    exit 1
  }
)

# The seeds of a mutation: its scenario's, or what a seed draws. Prints what leafsim says; its exit code.
simulate() {
  local scenario=$1 seeds=$2 code=0
  local flags=(--quiet --stop --seed "$first" --seeds "$seeds")
  if [[ -n $scenario ]]; then flags+=(--scenario "$scenario"); fi
  timeout "$patience" "$scratch/build/release/leafsim" "${flags[@]}" 2>&1 || code=$?
  return "$code"
}

# Exit code 0 if the tests of this file pass with each of the seeds; what was wrong goes to stdout.
run_test() {
  local test=$1 seeds=$2 seed code=0
  for ((seed = first; seed < first + seeds; seed++)); do
    timeout "$patience" env LEAFCTL="$scratch/build/release/leafctl" LEAFCTL_TEST_SEED="$seed" \
      python3 "tests/$test" >"$scratch/test.log" 2>&1 || code=$?
    if ((code == 0)); then continue; fi
    echo "seed $seed"
    grep -m 1 '^failed: ' "$scratch/test.log" || echo "exit code $code"
    return 10
  done
}

apt_need "${test_packages[@]}"
mkdir -p "$scratch"
copy_sources
set_cmake_flags
(cd "$scratch" && cmake --preset release "${cmake_flags[@]}" >build.log 2>&1) || die "cannot configure: $scratch/build.log"

# ---- the code as it is -----------------------------------------------------------------------------------------

declare -A budgets=() test_budgets=()
for name in "${names[@]}"; do
  scenario=$(field scenario "$name")
  seeds=$(field seeds "$name")
  test=$(field test "$name")
  if [[ -n $test ]]; then
    if ((seeds > ${test_budgets[$test]:-0})); then test_budgets[$test]=$seeds; fi
    continue
  fi
  if ((seeds > ${budgets[${scenario:-drawn}]:-0})); then budgets[${scenario:-drawn}]=$seeds; fi
done
for test in "${!test_budgets[@]}"; do
  build "$test" || die "the code as it is does not build"
  if ! output=$(run_test "$test" "${test_budgets[$test]}"); then
    echo "$output" >&2
    die "without any mutation, and with the same seeds, $test fails: it would prove nothing"
  fi
  echo "clean without a mutation: $test, ${test_budgets[$test]} seeds"
done
if ((${#budgets[@]} > 0)); then build '' || die "the code as it is does not build"; fi
for what in "${!budgets[@]}"; do
  scenario=$what
  if [[ $what == drawn ]]; then scenario=''; fi
  if ! output=$(simulate "$scenario" "${budgets[$what]}"); then
    echo "$output" >&2
    die "without any mutation, and on the same seeds ($what), the simulator is not content: it would prove nothing"
  fi
  echo "clean without a mutation: $what, ${budgets[$what]} seeds"
done

# ---- each mutation ---------------------------------------------------------------------------------------------

planted=''
# Takes the mutation back, if one is planted.
restore() {
  if [[ -n $planted ]]; then (cd "$scratch" && apply -R "$root/$folder/$planted.patch"); fi
  planted=''
}
trap restore EXIT

table=()
survivors=()
for name in "${names[@]}"; do
  seeds=$(field seeds "$name")
  promise=$(field promise "$name")
  started=$SECONDS
  (cd "$scratch" && apply "$root/$folder/$name.patch")
  planted=$name
  test=$(field test "$name")
  build "$test" || die "$name does not build"
  code=0
  if [[ -n $test ]]; then
    output=$(run_test "$test" "$seeds") || code=$?
  else
    output=$(simulate "$(field scenario "$name")" "$seeds") || code=$?
  fi
  restore
  verdict=SURVIVED
  after=-
  by="exit $code: $(tail -n 1 <<<"$output")"
  if [[ -n $test ]] && ((code == 10)); then
    line=$(head -n 1 <<<"$output")
    by=$(tail -n 1 <<<"$output")
  elif ((code == 10)); then
    line=$(grep -m 1 -E '^seed [0-9]+ VIOLATION ' <<<"$output")
    by=${line#*VIOLATION }
  elif ((code == 11 || code == 12)); then
    line=$(grep -m 1 -E 'at seed [0-9]+|^seed [0-9]+ NOT REPEATABLE' <<<"$output")
    by=$(grep -m 1 -E 'broken invariant|NOT REPEATABLE' <<<"$output" || echo "$line")
  fi
  if ((code >= 10 && code <= 12)); then
    verdict=caught
    seed=$(grep -oE 'seed [0-9]+' <<<"$line")
    after=$((${seed#seed } - first + 1))
  else
    survivors+=("$name")
  fi
  table+=("$(printf '%-36s %-7s %-8s %5s of %3d  %s' "$name" "$promise" "$verdict" "$after" "$seeds" "${by:0:150}")")
  echo "${table[-1]} ($((SECONDS - started)) s)"
done

echo
echo "== summary: mutation, promise, verdict, caught by which seed of how many, how"
printf '%s\n' "${table[@]}"
if ((${#survivors[@]} > 0)); then
  echo "mutations.sh: survived: ${survivors[*]}" >&2
  exit 1
fi
