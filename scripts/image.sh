#!/usr/bin/env bash
# Leaves a container image: build/packages/leafctl-VERSION-oci-ARCH.tar, an archive of the OCI layout for podman, skopeo
# and `docker load`. It has the binary and, of Debian's packages, exactly the libraries that it needs (with MySQL's), their
# licences, a list of them for scanners, and the certificate authorities; no shell. Needs no container engine. The same
# sources and packages give the same bytes.
# Usage: image.sh [BUILD FOLDER]   (default: builds as package.sh does; BUILD: takes what is there, leaves it in FOLDER)
# Environment: SOURCE_DATE_EPOCH  the time that the image and its files have (default 0)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

if [[ ${1:-} == -* ]] || (($# != 0 && $# != 2)); then
  sed -nE '2,/^[^#]/s/^# ?//p' scripts/image.sh
  exit 0
fi
if (($# == 0)); then
  apt_need "${image_packages[@]}"
  set_cmake_flags
  cmake --preset release -DLEAF_BUILD_TESTS=OFF "${cmake_flags[@]}"
  cmake --build --preset release
fi
build=${1:-build/release}
folder=${2:-build/packages}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage/root cmake --install "$build" --component leafctl --prefix /usr --strip >"$stage/install.log" ||
  die "cannot install: $(cat "$stage/install.log")"
scripts/sbom.py "$build" >"$stage/sbom.spdx.json"
version=$(sed -nE 's/^set\(CPACK_PACKAGE_VERSION "([^"]+)"\)$/\1/p' "$build/CPackConfig.cmake")
# Not where there is no history, or where the checkout is another user's.
LEAF_IMAGE_REVISION=$(git rev-parse HEAD 2>/dev/null || true)
export LEAF_IMAGE_REVISION
mkdir -p "$folder"
scripts/image.py "$stage/root" "$stage/sbom.spdx.json" "$version" "$folder/leafctl-$version-oci-$(uname -m).tar"
