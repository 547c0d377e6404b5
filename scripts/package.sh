#!/usr/bin/env bash
# Installs what the build needs, builds, and leaves the Debian packages leafctl and libleaf-dev in build/packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

apt_need "${package_packages[@]}"
set_cmake_flags
cmake --preset release -DLEAF_BUILD_TESTS=OFF "${cmake_flags[@]}"
cmake --build --preset release

mkdir -p build/packages
rm -f build/packages/*.deb
cpack --config build/release/CPackConfig.cmake -B build/packages
rm -rf build/packages/_CPack_Packages
ls -l build/packages/*.deb
