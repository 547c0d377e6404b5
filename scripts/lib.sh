# shellcheck shell=bash
# Shared by the scripts beside it; to be sourced. Expects nothing but a minimal Debian 12 or 13.

# What the build needs. One Debian has another name for it than the next: of "a|b", the first that is installed counts, or
# the first that apt knows.
# shellcheck disable=SC2034 # the lists are used by the scripts that source this file
build_packages=(
  g++ cmake ninja-build pkg-config
  'libboost1.81-dev|libboost1.83-dev' libcli11-dev libfmt-dev libmariadb-dev libsoci-dev libspdlog-dev libsqlite3-dev
  libssl-dev libtomlplusplus-dev libzookeeper-mt-dev nlohmann-json3-dev
)
# What package.sh and tarball.sh need.
# shellcheck disable=SC2034
package_packages=("${build_packages[@]}" binutils dpkg-dev file gzip python3)
# What image.sh needs.
# shellcheck disable=SC2034
image_packages=("${package_packages[@]}" base-files ca-certificates libmariadb3 'libssl3|libssl3t64')
# What quickstart.sh needs.
# shellcheck disable=SC2034
quickstart_packages=("${build_packages[@]}" curl ca-certificates procps)
# What test.sh needs: real servers, and the tools of check.sh.
# shellcheck disable=SC2034
test_packages=(
  "${quickstart_packages[@]}" "${package_packages[@]}" "${image_packages[@]}" debootstrap crun
  libgtest-dev libgmock-dev libbenchmark-dev 'libboost-context1.81-dev|libboost-context1.83-dev' prometheus-cpp-dev nghttp2-client wrk
  nginx-light redis-server redis-tools python3-redis libhiredis-dev
  mariadb-server galera-4 rsync zookeeper default-jre-headless
  chromium chromium-driver prometheus stunnel4 valgrind
  python3 python3-yaml psmisc util-linux iproute2 git faketime systemd openssl
  clang libclang-rt-dev llvm lld clang-format clang-tidy python3-clang shellcheck mandoc man-db zsh fish
)
# Not where the command has come with another package, which Debian's would be in the way of.
if ! command -v kubectl >/dev/null; then test_packages+=(kubernetes-client); fi

# Prints a message and ends the script.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# Runs a command as root, through sudo if need be.
as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    sudo "$@"
  fi
}

# Prints those of the packages that are not installed, one a line: "a|b" if neither is.
missing_packages() {
  local package status name all=() names=()
  local -A installed=()
  for package in "$@"; do
    IFS='|' read -ra names <<<"$package"
    all+=("${names[@]}")
  done
  # One question for all of them; it fails if dpkg does not know one.
  while read -r status package; do
    if [[ $status == installed ]]; then installed[$package]=1; fi
  done < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${all[@]}" 2>/dev/null)
  for package in "$@"; do
    status=missing
    IFS='|' read -ra names <<<"$package"
    for name in "${names[@]}"; do
      if [[ -n ${installed[$name]:-} ]]; then status=installed; fi
    done
    if [[ $status == missing ]]; then echo "$package"; fi
  done
}

# Prints the packages, one a line: of "a|b" the first that apt can install. Fails if it can install none of them.
choose_packages() {
  local package name names=() chosen
  for package in "$@"; do
    chosen=$package
    if [[ $package == *'|'* ]]; then
      chosen=''
      IFS='|' read -ra names <<<"$package"
      for name in "${names[@]}"; do
        if [[ -z $chosen && $(LC_ALL=C apt-cache policy "$name") == *'Candidate: '[!\(]* ]]; then chosen=$name; fi
      done
      [[ -n $chosen ]] || die "apt knows none of the packages ${names[*]}: is this Debian 12 or 13?"
    fi
    echo "$chosen"
  done
}

# Installs those of the packages that are missing. Asks the network only if there are any.
apt_need() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then return 0; fi
  echo "installing ${missing[*]}" >&2
  apt_install_without_services "${missing[@]}"
}

# The servers among the packages are started by the tests, each with its own data: none is wanted system-wide, and
# in a container the attempt to start one would fail the installation.
apt_install_without_services() (
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" || exit
  fi
  as_root apt-get -q update || exit
  chosen=$(choose_packages "$@") || exit
  mapfile -t packages <<<"$chosen"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${packages[@]}"
)

# Sets cmake_flags: what every configuration of this project gets.
# shellcheck disable=SC2034
set_cmake_flags() {
  cmake_flags=()
  if command -v ccache >/dev/null; then cmake_flags+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
}
