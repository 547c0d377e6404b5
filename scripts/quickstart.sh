#!/usr/bin/env bash
# From a bare Debian 12 or 13 to the first IDs: installs what the build needs, builds, then adds a tag, runs the daemon
# and takes IDs from it, in a temporary folder that is removed again. Ends with an error if any result is not as it should
# be.
# Usage: quickstart.sh            everything
#        quickstart.sh --built    installs and builds nothing: with build/release as it is, for the tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ $* != --built ]]; then
  (($# == 0)) || die "what is '$*'? usage: quickstart.sh [--built]"
  apt_need "${quickstart_packages[@]}"
  set_cmake_flags
  cmake --preset release -DLEAF_BUILD_TESTS=OFF "${cmake_flags[@]}"
  cmake --build --preset release
fi

scratch=$(mktemp -d)
daemon=''
cleanup() {
  local code=$?
  if ((code != 0)); then
    echo "quickstart: FAILED" >&2
    if [[ -e $scratch/log ]]; then sed 's/^/daemon: /' "$scratch/log" >&2; fi
  fi
  if [[ -n $daemon ]]; then
    kill -KILL "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap cleanup EXIT

# Nothing that is configured on this machine may get in the way.
for name in "${!LEAFCTL_@}" "${!XDG_@}" STATE_DIRECTORY RUNTIME_DIRECTORY CREDENTIALS_DIRECTORY; do unset "$name"; done
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
mkdir "$scratch/home"
# A daemon of this machine is none of its business: commands without a store would ask for it.
printf '[segment]\nstore = "sqlite"\n' >"$scratch/leafctl.toml"
export HOME=$scratch/home LEAFCTL_STATE_DIR=$scratch/state LEAFCTL_CONFIG=$scratch/leafctl.toml
PATH=$PWD/build/release:$PATH

# Shows a command, runs it and shows what it says, which is in `result` then.
result=''
step() {
  echo
  echo "\$ $*"
  result=$("$@")
  if [[ -n $result ]]; then echo "$result"; fi
}

# The IDs so far, in the order of issue.
ids=()
# Takes the numbers out of `result`; there have to be $1 of them, each above all before.
take_ids() {
  local count=$1 found id
  read -ra found <<<"$(grep -oE '[0-9]+' <<<"$result" | tr '\n' ' ')"
  ((${#found[@]} == count)) || die "expected $count IDs, got: $result"
  for id in "${found[@]}"; do
    if ((${#ids[@]} > 0 && id <= ids[-1])); then die "ID $id after ${ids[-1]}: it may repeat"; fi
    ids+=("$id")
  done
}

echo
echo "== leafctl on its own: an SQLite file in the state directory"
step leafctl version
step leafctl tag add pay --step 1000
step leafctl next pay --direct -n 2
take_ids 2

echo
echo "== the daemon"
echo
echo '$ leafctl serve --listen 127.0.0.1:0 &'
: >"$scratch/log"
leafctl serve --listen 127.0.0.1:0 2>>"$scratch/log" &
daemon=$!
url=''
for ((i = 0; i < 300; ++i)); do
  url=$(sed -nE 's|.*listening on (http://127\.0\.0\.1:[0-9]+).*|\1|p' "$scratch/log")
  if [[ -n $url ]]; then break; fi
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
cat "$scratch/log"
[[ -n $url ]] || die "the daemon does not listen"
export LEAFCTL_CLIENT_SERVERS=$url

for ((i = 0; i < 300; ++i)); do
  if curl -fs -o "$scratch/ready" "$url/health/ready"; then break; fi
  sleep 0.1
done
step curl -fsS "$url/health/ready"
[[ $result == *'"ready":true'* ]] || die "the daemon is not ready"
step curl -fsS "$url/api/segment/get/pay"
take_ids 1
step curl -fsS -X POST "$url/v1/segment/pay?count=3"
take_ids 3
step leafctl next pay -n 3
take_ids 3
step curl -fsS "$url/api/snowflake/get/pay"
snowflake=$result
step leafctl next --mode snowflake
((result > snowflake)) || die "the second snowflake ID is not above the first"
step leafctl decode "$snowflake"
# The worker number of a private cluster is drawn.
[[ $result =~ ^"$snowflake"\ time=.*\ worker=[0-9]+\ sequence=[0-9]+$ ]] || die "that is not what is in the ID"
step leafctl status
[[ $result == *pay* ]] || die "the status does not know the tag"

echo
echo '$ kill -TERM %1; wait %1'
kill -TERM "$daemon"
code=0
wait "$daemon" || code=$?
daemon=''
sed -nE '/SIGTERM/,$p' "$scratch/log"
((code == 0)) || die "the daemon ended with exit code $code"

echo
echo "== after it: what the daemon had reserved is gone, nothing comes twice"
step leafctl next pay --direct
take_ids 1

[[ ${ids[*]:0:9} == "1 2 3 4 5 6 7 8 9" ]] || die "not the IDs that were to be expected: ${ids[*]}"
echo
echo "quickstart: OK, ${#ids[@]} IDs, none twice: ${ids[*]}"
echo "the binary is $PWD/build/release/leafctl"
