#!/usr/bin/env bash
# Leaves one file for any Linux with glibc 2.34 or newer: build/packages/leafctl-VERSION-linux-ARCH.tar.gz with the binary,
# manual pages, completion, units, licence and a list of what is linked in (SPDX). To be unpacked, or copied to
# /usr/local. Fails if the binary needs a newer C library, or any other shared library than the C library's. MySQL needs
# the system's libmariadb, and TLS its libssl (OpenSSL 3), which are opened when they are configured.
# Usage: tarball.sh [BUILD FOLDER]   (default: builds as package.sh does; BUILD: takes what is there, leaves it in FOLDER)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ ${1:-} == -* ]] || (($# != 0 && $# != 2)); then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/tarball.sh
  exit 0
fi
if (($# == 0)); then
  apt_need "${package_packages[@]}"
  set_cmake_flags
  cmake --preset release -DLEAF_BUILD_TESTS=OFF "${cmake_flags[@]}"
  cmake --build --preset release
fi
build=${1:-build/release}
folder=${2:-build/packages}
newest=2.34

# Whether one version of glibc is above what may be asked for.
too_new() { [[ $(printf '%s\n' "$1" "$newest" | sort -V | tail -n 1) != "$newest" ]]; }

for version in $(objdump -T "$build/leafctl" | grep -oE 'GLIBC_[0-9.]+' | sort -u); do
  if too_new "${version#GLIBC_}"; then
    objdump -T "$build/leafctl" | grep "$version" >&2
    die "the binary needs $version, and the oldest systems it is for have $newest"
  fi
done
for library in $(objdump -p "$build/leafctl" | sed -nE 's/^ *NEEDED +//p'); do
  case $library in
    libc.so.6 | libm.so.6 | ld-linux-*) ;;
    *) die "the binary needs $library, which is not part of the C library" ;;
  esac
done

version=$(sed -nE 's/^set\(CPACK_PACKAGE_VERSION "([^"]+)"\)$/\1/p' "$build/CPackConfig.cmake")
name=leafctl-$version-linux-$(uname -m)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage/root cmake --install "$build" --component leafctl --prefix /usr/local --strip >"$stage/install.log" ||
  die "cannot install: $(cat "$stage/install.log")"
mv "$stage/root/usr/local" "$stage/$name"
if [[ -n $(find "$stage/root" -type f) ]]; then die "installed outside of the prefix: $(find "$stage/root" -type f)"; fi
cp LICENSE README.md "$stage/$name/"
scripts/sbom.py "$build" >"$stage/$name/sbom.spdx.json"
mkdir -p "$folder"
# The same bytes for the same content.
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@"${SOURCE_DATE_EPOCH:-0}" --mode=go=rX,u+rw,a-s \
  -cf - "$name" | gzip -9n >"$folder/$name.tar.gz"
ls -l "$folder/$name.tar.gz"
