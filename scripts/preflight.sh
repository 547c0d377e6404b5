#!/usr/bin/env bash
# Says whether scripts/test.sh can pass on this machine, before it installs and builds anything: a line for each thing that
# is missing, and exit 1 if there is one. Changes nothing; takes seconds, and half a minute if the mirror is silent.
# What it looks at: root or sudo, namespaces for mounts and networks, containers, the mirror of Debian that apt is configured for,
# space for the builds, memory, and /tmp.
# Usage: preflight.sh
# Environment: LEAF_TEST_PRESETS  the presets that are to be built (default "release asan-ubsan tsan")
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/preflight.sh
  exit 0
fi

read -ra presets <<<"${LEAF_TEST_PRESETS:-release asan-ubsan tsan}"
# The largest build, with the address sanitizer, takes 1.3 GB (measured).
preset_mb=1500
# Servers with their data, and Debian roots with a compiler in them.
tmp_mb=2000
memory_mb=4096

lacking=$(missing_packages "${test_packages[@]}")
bad=0
problem() {
  echo "preflight.sh: $*" >&2
  bad=1
}

# Whether the tests of the packages and of README run: they need more than the others.
has_release() { [[ " ${presets[*]} " == *" release "* ]]; }

# Without a password, as the run needs it again after an hour.
can_be_root() { ((EUID == 0)) || sudo -n true 2>/dev/null; }

check_root() {
  local why=''
  if can_be_root; then return 0; fi
  if has_release; then why="the test of the packages makes a Debian root"; fi
  if [[ -n $lacking ]]; then why="packages have to be installed"; fi
  if [[ -z $why ]]; then return 0; fi
  problem "needs root ($why): run it as root, or as a user whose sudo asks for no password"
}

check_namespaces() {
  local own=(unshare --mount --net) said
  if ((EUID != 0)); then own+=(--map-root-user); fi
  if said=$("${own[@]}" mount -t tmpfs tmpfs /tmp 2>&1) &&
    { ((EUID == 0)) || ! has_release || ! can_be_root || said=$(sudo -n unshare --mount true 2>&1); }; then
    check_containers
    return 0
  fi
  if ! mountpoint -q /; then
    problem "cannot mount anything in a namespace of its own, as / is no mount point (a plain chroot): bind the root on" \
      "itself before the chroot (mount --bind ROOT ROOT)"
  else
    problem "cannot have namespaces of its own for mounts and the network (a container without privileges?): $said"
  fi
}

# The test of the image runs it with crun, which looks for the one hierarchy of control groups.
check_containers() {
  local said own=(unshare --mount --net --pid --ipc --uts --fork)
  if ! has_release || ! can_be_root; then return 0; fi
  if said=$(as_root "${own[@]}" true 2>&1) &&
    said=$(as_root "${own[@]}" sh -c 'mount -t tmpfs tmpfs /tmp && mkdir /tmp/cgroup && mount -t cgroup2 cgroup2 /tmp/cgroup' 2>&1); then
    return 0
  fi
  problem "cannot run a container (the test of the image needs namespaces and control groups): ${said%%$'\n'*}"
}

# The mirror is asked for what is at the top of each of its suites, in the way in which apt would do it.
check_mirror() {
  local why='' scratch said code=0 index uris files=()
  if has_release; then why="the test of the packages installs them in a root of its own"; fi
  if [[ -n $lacking ]]; then why="packages are missing here"; fi
  if [[ -z $why ]]; then return 0; fi
  if ! command -v apt-get >/dev/null; then
    problem "there is no apt-get: this is no Debian"
    return 0
  fi
  mapfile -t uris < <(apt-get --print-uris update 2>/dev/null | sed -nE "s/^'([^']*\/InRelease)' .*/\1/p")
  if ((${#uris[@]} == 0)); then
    problem "apt has no source that it could ask ($why)"
    return 0
  fi
  scratch=$(mktemp -d 2>/dev/null) || return 0 # check_tmp has told
  for index in "${!uris[@]}"; do files+=("${uris[index]}" "$scratch/$index"); done
  said=$(timeout 30 /usr/lib/apt/apt-helper -o APT::Sandbox::User=root -o Acquire::Retries=0 -o Acquire::http::Timeout=10 \
    -o Acquire::https::Timeout=10 download-file "${files[@]}" 2>&1) || code=$?
  for index in "${!uris[@]}"; do
    if [[ -s $scratch/$index ]]; then unset "uris[index]"; fi
  done
  rm -rf "$scratch"
  if ((code == 0)); then return 0; fi
  said=$(grep -E '^(E: |  )' <<<"$said" | head -n 1 | sed -E 's/^ +|^E: //' || true)
  problem "no mirror of Debian answers for ${uris[*]} ($why)${said:+: $said}"
}

# What of the first argument's folder is free for us, in MB.
free_mb() { df --output=avail -B 1M "$1" | tail -n 1 | tr -d ' '; }

check_disk() {
  local needed=0 there preset builds
  for preset in "${presets[@]}"; do
    # What a build before left there is not needed again.
    there=0
    if [[ -d build/$preset ]]; then there=$(du -sm "build/$preset" | cut -f 1); fi
    if ((there < preset_mb)); then needed=$((needed + preset_mb - there)); fi
  done
  if (($(free_mb .) < needed)); then
    case ${#presets[@]} in 1) builds="1 build needs" ;; *) builds="${#presets[@]} builds need" ;; esac
    problem "too little space: $PWD has $(free_mb .) MB, and $builds $needed MB"
  fi
  if [[ -d /tmp ]] && (($(free_mb /tmp) < tmp_mb)); then
    problem "too little space: /tmp has $(free_mb /tmp) MB, and the tests need $tmp_mb MB"
  fi
}

check_memory() {
  local available limit file
  available=$(awk '/^(MemAvailable|SwapFree):/ { sum += $2 } END { print int(sum / 1024) }' /proc/meminfo)
  # A container's own limit.
  for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    if ! limit=$(cat "$file" 2>/dev/null) || [[ ! $limit =~ ^[0-9]{1,15}$ ]]; then continue; fi
    if ((limit / 1048576 < available)); then available=$((limit / 1048576)); fi
  done
  if ((available < memory_mb)); then
    problem "too little memory: $available MB are available, with swap, and the builds need $memory_mb MB"
  fi
}

# Tests keep their servers there, and run programs from there.
check_tmp() {
  local file
  if ! file=$(mktemp /tmp/leafctl-preflight-XXXXXX 2>/dev/null); then
    problem "cannot write to /tmp"
    return 0
  fi
  printf '#!/bin/sh\n' >"$file"
  chmod 700 "$file"
  if ! "$file" 2>/dev/null; then problem "cannot run a program in /tmp (mounted noexec?)"; fi
  rm -f "$file"
}

check_tmp
check_root
check_disk
check_memory
check_namespaces
check_mirror
exit "$bad"
