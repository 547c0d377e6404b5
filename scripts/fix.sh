#!/usr/bin/env bash
# Corrects what scripts/check.sh format finds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh
clang-format --version | grep -q 'version 14\.' || die "needs clang-format 14"
find lib cmd tests \( -name '*.cc' -o -name '*.h' \) -print0 | xargs -0 clang-format -i
