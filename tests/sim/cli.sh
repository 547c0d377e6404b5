#!/usr/bin/env bash
# What leafsim prints, and its exit codes. Usage: cli.sh COMMAND...   (what starts leafsim)
set -uo pipefail

failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect CODE TEXT ARGUMENT...: the exit code, and what the output has to hold.
expect() {
  local code=$1 text=$2
  shift 2
  "${leafsim[@]}" "$@" >"$scratch/out" 2>&1
  local got=$?
  ((got == code)) || fail "leafsim $*: exit code $got, not $code"
  grep -qF -- "$text" "$scratch/out" || fail "leafsim $*: no '$text' in: $(head -c 1000 "$scratch/out")"
}

leafsim=("$@")
expect 0 "IDs checked" --seed 7
[[ $(sed -n 2p "$scratch/out") == "seed 7: nodes "* ]] || fail "the seed and its options do not come first"
cp "$scratch/out" "$scratch/first"
expect 0 "IDs checked" --seed 7
cmp -s "$scratch/first" "$scratch/out" || fail "one seed, two runs: they differ"
expect 0 "IDs checked" --seed 8
cmp -s "$scratch/first" "$scratch/out" && fail "two seeds, one run"
expect 0 "nodes 2," --seed 7 --nodes 2 --hours 0.01
LEAF_SIM_SEED=9 expect 0 "seed 9: nodes" --hours 0.002

printf 'nodes = 1\n[[act]]\nat = 1\ndo = "dance"\n' >"$scratch/unknown_act.toml"
expect 2 "unknown act 'dance'" --scenario "$scratch/unknown_act.toml"
printf 'nodes = 1\nfaults = ["rain"]\n' >"$scratch/unknown_fault.toml"
expect 2 "unknown fault 'rain'" --scenario "$scratch/unknown_fault.toml"
printf 'registry = "paper"\n' >"$scratch/unknown_registry.toml"
expect 2 "registry paper" --scenario "$scratch/unknown_registry.toml"
printf 'registry = "sql"\ndatabase = "maps"\n' >"$scratch/no_sql.toml"
expect 2 "registry sql without database sql" --scenario "$scratch/no_sql.toml"
printf 'faults = ["db_lock"]\n' >"$scratch/needs_sql.toml"
expect 2 "unknown fault 'db_lock'" --scenario "$scratch/needs_sql.toml"
printf 'expected = ["P11"]\n' >"$scratch/no_promise.toml"
expect 2 "expected P11" --scenario "$scratch/no_promise.toml"
# What is expected to be broken has to be, and nothing else.
museum=$(dirname "${BASH_SOURCE[0]}")/museum
expect 0 "breaks P1, as expected" --scenario "$museum/sql_registry_split.toml"
sed 's/^expected = .*/expected = ["P5"]/' "$museum/sql_registry_split.toml" >"$scratch/other_promise.toml"
expect 10 "VIOLATION" --scenario "$scratch/other_promise.toml"
printf 'expected = ["P1"]\nnodes = 1\ntrouble_s = 1\n' >"$scratch/not_broken.toml"
expect 10 "was expected to be broken" --scenario "$scratch/not_broken.toml"
printf 'nodse = 1\n' >"$scratch/unknown_key.toml"
expect 2 "unknown key 'nodse'" --scenario "$scratch/unknown_key.toml"
printf 'nodes = [\n' >"$scratch/no_toml.toml"
expect 2 "no_toml.toml" --scenario "$scratch/no_toml.toml"
expect 2 "does not exist" --scenario "$scratch/none.toml"
expect 2 "--sede" --sede 7

for scenario in "$museum"/*.toml; do
  name=$(basename "$scenario" .toml)
  grep -qF "| $name |" "$museum/README.md" || fail "$name is not in the museum's README"
done

((failures == 0)) || exit 1
echo "leafsim's output and exit codes are as they should be"
