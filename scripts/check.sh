#!/usr/bin/env bash
# Checks the sources without running them.
# Usage: check.sh [--changed] [format|tidy|threads|layers|includes|shell|man|addresses|orphans|words|all]...   (default: all)
#   --changed  tidy, threads and includes look only at the public headers and at the sixty files that changed last: in
#              what is not committed yet, and in the commits since LEAF_CHECK_SINCE. Everything, where git knows no
#              such commit.
#   all        leaves out format and tidy where clang is not that of Debian 12 (14), and says so
# Environment: LEAF_CHECK_SINCE  a revision (default: the newest that is more than 4 hours old)
# scripts/fix.sh corrects the format. Results of tidy, threads and includes are kept in build/check, so that a second
# run only looks at what has changed.
# shellcheck disable=SC2016 # what xargs and awk run is quoted on purpose
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR
. scripts/lib.sh

cache=$PWD/build/check
jobs=$(nproc)
export cache

# ---- what has changed ------------------------------------------------------------------------------------------

changed_only=false
if [[ ${1:-} == --changed ]]; then
  changed_only=true
  shift
fi

# More files than that take longer than all tests together. soak.sh sources looks at everything.
changed_max=60

# The files of lib and cmd that tidy, threads and includes look at with --changed, one a line: nothing without it.
changed_files() {
  local before
  before=${LEAF_CHECK_SINCE:-$(git rev-list -1 --before='4 hours ago' HEAD 2>/dev/null)} || before=''
  if [[ -z $before ]]; then
    find lib cmd tests \( -name '*.cc' -o -name '*.h' \) | LC_ALL=C sort
    return
  fi
  {
    git ls-files --modified --others --exclude-standard -- lib cmd tests
    git log --format= --name-only --diff-filter=d "$before..HEAD" -- lib cmd tests |
      awk '/\.(cc|h)$/ && !seen[$0]++' | while read -r file; do if [[ -e $file ]]; then echo "$file"; fi; done |
      awk -v most="$changed_max" 'NR <= most'
    public_headers
  } | grep -E '\.(cc|h)$' | LC_ALL=C sort -u
}

# leaf.h, and what it includes of ours.
public_headers() {
  g++ -std=c++20 -MM -I lib lib/leaf/leaf.h | grep -oE 'lib/leaf/[^ ]*\.h'
}

# ----------------------------------------------------------------------------------------------------------------

sources() { find "$@" \( -name '*.cc' -o -name '*.h' \) | LC_ALL=C sort; }

# path:line:text of lib and cmd, without comments.
code_lines() { sources lib cmd | xargs -d '\n' awk '{ sub(/\/\/.*/, ""); print FILENAME ":" FNR ":" $0 }'; }

# ---- format ----------------------------------------------------------------------------------------------------

check_format() {
  # Another version formats differently.
  clang-format --version | grep -q 'version 14\.' || die "format needs clang-format 14"
  sources lib cmd tests | xargs -d '\n' clang-format --dry-run -Werror
}

# ---- tidy ------------------------------------------------------------------------------------------------------

# Left out for what they cost, as they look at every function or name of every foreign header, too (share of the whole
# run): performance-unnecessary-value-param 45 %, bugprone-reserved-identifier 7 %, bugprone-stringview-nullptr 4 %.
tidy_checks=-performance-unnecessary-value-param,-bugprone-reserved-identifier,-bugprone-stringview-nullptr
# The units that are looked at are made of sources.
tidy_checks+=,-bugprone-suspicious-include
export tidy_checks

# clang-tidy on one unit of scripts/tidy_units.py; its findings go to the cache. A failure without a finding does not: the
# next run may go well.
tidy_one() {
  local unit=$1 key result sources
  mapfile -t sources < <(sed -nE 's/^#include "(.*)"$/\1/p' "$unit")
  key=$(cat "$cache/tidy/common" "$unit" "${sources[@]}" | sha256sum)
  result=$cache/tidy/${key%% *}
  if [[ ! -e $result ]]; then
    if clang-tidy -p "$cache/tidy" --quiet --checks="$tidy_checks" --header-filter="$PWD/(lib|cmd)/.*" "$unit" \
      >"$result.$$" 2>"$result.$$.err"; then
      : >"$result.$$"
    elif ! grep -qE ': (error|warning): ' "$result.$$"; then
      # The tool itself says why.
      cat "$result.$$.err"
      echo "$unit: clang-tidy failed"
      rm -f "$result.$$" "$result.$$.err"
      return
    fi
    rm -f "$result.$$.err"
    mv "$result.$$" "$result"
  fi
  cat "$result"
}
export -f tidy_one

check_tidy() {
  local findings units
  # A build of its own, in which each file stands for itself.
  set_cmake_flags
  cmake --preset release -B "$cache/cmake" -DLEAF_STATIC=OFF -DLEAF_UNITY=OFF -DLEAF_BUILD_TESTS=OFF \
    "${cmake_flags[@]}" >/dev/null
  mkdir -p "$cache/tidy"
  if "$changed_only"; then
    changed_files >"$cache/changed"
    units=$(python3 scripts/tidy_units.py "$cache/cmake/compile_commands.json" "$cache/tidy" "$cache/changed")
  else
    units=$(python3 scripts/tidy_units.py "$cache/cmake/compile_commands.json" "$cache/tidy")
  fi
  if [[ -z $units ]]; then die "tidy found nothing to look at"; fi
  # A file's result holds for itself, everything it could include, and the settings.
  {
    clang-tidy --version
    echo "$tidy_checks"
    cat .clang-tidy
    find lib cmd -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    sed -nE 's/.*"command": .*(-O[0-9].*) -c .*/\1/p' "$cache/tidy/compile_commands.json" | LC_ALL=C sort -u
  } | sha256sum >"$cache/tidy/common"
  # Results older than two weeks belong to files that are long gone.
  find "$cache/tidy" -maxdepth 1 -type f -mtime +14 -delete
  xargs -d '\n' -P "$jobs" -n 1 bash -c 'tidy_one "$1"' _ <<<"$units" >"$cache/tidy/findings"
  # A header's finding comes once for each unit that includes it.
  findings=$(sed "s|$PWD/||g" "$cache/tidy/findings" | grep -E ': (error|warning): |clang-tidy failed' |
    LC_ALL=C sort -u || true)
  if [[ -n $findings ]]; then
    echo "$findings"
    echo "(with their context: build/check/tidy/findings)"
    return 1
  fi
}

# ---- threads ---------------------------------------------------------------------------------------------------

# The sources of lib and cmd. Of a header that has changed the source of its name, or else the first that includes it.
files_with_mutexes() {
  if ! "$changed_only"; then
    sources lib cmd | grep '\.cc$'
    return
  fi
  local file include
  changed_files | grep -E '^(lib|cmd)/' | while read -r file; do
    if [[ $file == *.cc ]]; then
      echo "$file"
    elif [[ -e ${file%.h}.cc ]]; then
      echo "${file%.h}.cc"
    else
      include=${file#lib/}
      include=${include#cmd/leafctl/}
      { grep -rlF --include='*.cc' "#include \"$include\"" lib cmd || true; } | LC_ALL=C sort | awk 'NR == 1'
    fi
  done | LC_ALL=C sort -u
}

# clang on a few sources of one folder, with spaces between them, as one unit: it spends most of its time on headers,
# which a unit reads once. A success is remembered.
threads_one() {
  local unit=$1 key files
  read -ra files <<<"$unit"
  key=$(cat "$cache/threads/common" "${files[@]}" - <<<"$unit" | sha256sum)
  if [[ -e $cache/threads/${key%% *} ]]; then return 0; fi
  if ! printf '#include "%s"\n' "${files[@]}" | clang++ -std=c++20 -Wthread-safety -Werror -fsyntax-only \
    -DLEAFCTL_VERSION='""' -I . -I lib -isystem /usr/include/mariadb -x c++ -; then
    return 1
  fi
  : >"$cache/threads/${key%% *}"
}
export -f threads_one

# What a mutex guards is touched with the mutex held: clang sees to it, by the annotations of base/mutex.h.
check_threads() {
  local found
  found=$(code_lines | grep -E '[^A-Za-z0-9_]std::(shared_)?mutex([^A-Za-z0-9_]|$)' |
    grep -v '^lib/leaf/base/mutex\.h:' || true)
  if [[ -n $found ]]; then
    echo "what a std::mutex guards is not checked: take leaf::Mutex (lib/leaf/base/mutex.h):"
    echo "$found"
    return 1
  fi
  mkdir -p "$cache/threads"
  {
    clang++ --version
    find lib cmd -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum >"$cache/threads/common"
  find "$cache/threads" -type f -mtime +14 -delete
  files_with_mutexes | awk -v most=24 '
    { folder = $0; sub("/[^/]*$", "", folder) }
    folder != last || count == most { if (NR > 1) print unit; unit = ""; count = 0 }
    { unit = unit (count++ > 0 ? " " : "") $0; last = folder }
    END { if (NR > 0) print unit }' |
    xargs -r -d '\n' -P "$jobs" -n 1 bash -c 'threads_one "$1"' _ 2>&1
}

# ---- layers ----------------------------------------------------------------------------------------------------

# The parts of lib/leaf that each part may include, beside itself.
allowed_parts() {
  case $1 in
    base) echo "" ;;
    core | tls) echo "base" ;;
    client) echo "tls base" ;;
    config) echo "core base" ;;
    java) echo "config core base" ;;
    access | codes | service | sys | sql | zookeeper) echo "core base" ;;
    server) echo "access codes java service core tls base" ;;
    embed) echo "codes java service sql sys zookeeper client config core tls base" ;;
    inspect) echo "access embed codes java service sql sys zookeeper client config core tls base" ;;
    *) return 1 ;;
  esac
}

# Fails if a line of lib or cmd matches the extended regular expression $2, unless its path:line begins like $3. $1 is
# the rule, in words.
forbid() {
  local what=$1 pattern=$2 allowed=$3 found
  found=$(grep -E "$pattern" "$code" | grep -vE "^($allowed)" || true)
  if [[ -z $found ]]; then return 0; fi
  echo "$what:"
  echo "$found"
  return 1
}

# The headers that programs include: leaf.h, and what it needs. A macro there would be one of every such program.
check_face() {
  local wrong=0 needed installed
  if g++ -std=c++20 -E -dD -I lib -x c++ - <<<'#include "leaf/leaf.h"' |
    awk '/^# [0-9]+ "/ { ours = index($3, "\"lib/leaf/") == 1 } ours && /^#define/ { print; found = 1 } END { exit !found }'; then
    echo "lib/leaf/leaf.h and what it includes define no macro"
    wrong=1
  fi
  needed=$(g++ -std=c++20 -MM -I lib -x c++ - <<<'#include "leaf/leaf.h"' | grep -oE 'lib/leaf/[a-z_/]+\.h' | sort -u)
  installed=$(grep -oE '^install\(FILES [^)]*DESTINATION include/leaf' lib/leaf/CMakeLists.txt |
    grep -oE '[a-z_/]+\.h' | sed 's|^|lib/leaf/|' | sort -u)
  if [[ $needed != "$installed" ]]; then
    echo "lib/leaf/leaf.h needs other headers than lib/leaf/CMakeLists.txt installs:"
    diff <(echo "$needed") <(echo "$installed") || true
    wrong=1
  fi
  return "$wrong"
}

check_layers() (
  failed=0
  check_face || failed=1
  code=$(mktemp)
  trap 'rm -f "$code"' EXIT
  code_lines >"$code"

  for folder in lib/leaf/*/; do
    part=$(basename "$folder")
    if ! allowed=$(allowed_parts "$part"); then
      echo "$folder: which parts may it include? (allowed_parts in scripts/check.sh)"
      failed=1
      continue
    fi
    pattern=$(tr ' ' '|' <<<"$part${allowed:+ $allowed}")
    found=$(grep -E "^${folder}[^:]*:[0-9]+: *# *include +\"" "$code" | grep -vE "\"leaf/(($pattern)/|leaf\.h\")" || true)
    if [[ -n $found ]]; then
      echo "$part may include $part${allowed:+ $allowed} only:"
      echo "$found"
      failed=1
    fi
  done

  inner=':[0-9]+: *# *include +"leaf/server/'
  forbid "lib/leaf/server/net knows no protocol, and not what requests are for" \
    "^lib/leaf/server/net/[^:]*$inner(http|resp|issue)/" 'nothing:' || failed=1
  forbid "lib/leaf/server/issue knows no protocol and no connection" \
    "^lib/leaf/server/issue/[^:]*$inner(http|resp|net)/" 'nothing:' || failed=1
  forbid "what stands in lib/leaf/server itself is for all its folders, and knows none" \
    "^lib/leaf/server/[^/:]*$inner(http|resp|issue|net)/" 'nothing:' || failed=1
  forbid "protocols know nothing of each other" "^lib/leaf/server/(http/[^:]*${inner}resp|resp/[^:]*${inner}http)/" \
    'nothing:' || failed=1
  include=':[0-9]+: *# *include *<'
  forbid "database headers belong in lib/leaf/sql, and in what inspects a database" \
    "$include(soci|mysql|mariadb|sqlite3)" 'lib/leaf/(sql/|inspect/sql_)' || failed=1
  forbid "OpenSSL's headers belong in lib/leaf/tls, in what hashes tokens and in what encrypts codes" \
    "$include(openssl/)" 'lib/leaf/(tls/|access/token_file\.cc|codes/(ff1|code_key)\.cc)' || failed=1
  forbid "ZooKeeper headers belong in lib/leaf/zookeeper" "$include(zookeeper|zookeeper\\.h)" 'lib/leaf/zookeeper/' ||
    failed=1
  forbid "CLI11 belongs in cmd" "$include(CLI/)" 'cmd/' || failed=1
  forbid "Boost belongs in lib/leaf/server and lib/leaf/client, but for containers" "$include(boost/)" \
    'lib/leaf/(server|client)/|[^:]*:[0-9]+: *# *include *<boost/(container|unordered)/' || failed=1
  word=':[0-9]+:(.*[^A-Za-z0-9_])?'
  forbid "take the time from a Clock" \
    "${word}(system_clock::now|steady_clock::now|clock_gettime|sleep_for|sleep_until|nanosleep)" \
    'lib/leaf/sys/system_clock\.cc:' || failed=1
  forbid "the environment and the terminal belong to the command's context" \
    "${word}(getenv *\\(|isatty *\\(|std::cout|std::cerr)" 'cmd/leafctl/context\.cc:|lib/leaf/sys/' || failed=1
  forbid "only main ends the process" "${word}(exit|_exit|_Exit|quick_exit) *\\(" 'cmd/leafctl/main\.cc:' || failed=1
  exit "$failed"
)

# ---- includes --------------------------------------------------------------------------------------------------

# Compiles one file on its own; a success is remembered. A build takes many sources as one, where a file lives on what
# the ones before it include, until the files are put together in another way.
include_one() {
  local file=$1 key what
  key=$(cat "$cache/includes/common" "$file" - <<<"$file" | sha256sum)
  if [[ -e $cache/includes/${key%% *} ]]; then return 0; fi
  # A header as the first of a source: by itself it would be the main file, which `#pragma once` is not for.
  case $file in
    *.h) what=(-x c++ - -I .) ;;
    *) what=("$file") ;;
  esac
  if ! g++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -DLEAFCTL_VERSION='""' -I lib -I tests \
    -isystem /usr/include/mariadb "${what[@]}" <<<"#include \"$file\""; then
    echo "$file: does not compile on its own"
    return 1
  fi
  : >"$cache/includes/${key%% *}"
}
export -f include_one

# The headers of all parts, and the sources of lib/leaf and cmd.
files_on_their_own() {
  if "$changed_only"; then changed_files; else sources lib cmd tests; fi | grep -E '\.h$|^(lib/leaf|cmd)/'
}

check_includes() {
  mkdir -p "$cache/includes"
  {
    g++ --version
    find lib cmd tests -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum >"$cache/includes/common"
  find "$cache/includes" -type f -mtime +14 -delete
  files_on_their_own | xargs -d '\n' -P "$jobs" -n 1 bash -c 'include_one "$1"' _ 2>&1
}

# ---- shell -----------------------------------------------------------------------------------------------------

check_shell() {
  { find scripts tests -name '*.sh' && find .ci -type f; } | LC_ALL=C sort | xargs -d '\n' shellcheck -x
}

# ---- man -------------------------------------------------------------------------------------------------------

check_man() { mandoc -Tlint -Wwarning man/*; }

# ---- addresses -------------------------------------------------------------------------------------------------

# No test leaves the machine.
check_addresses() { python3 scripts/addresses.py; }

# ---- orphans ---------------------------------------------------------------------------------------------------

# Everything is run by something, and every file that is cited is there.
check_orphans() { python3 scripts/orphans.py; }

# ---- words -----------------------------------------------------------------------------------------------------

# What users read has no stiff phrases.
check_words() { python3 scripts/words.py; }

# ----------------------------------------------------------------------------------------------------------------

if (($# == 0)) || [[ " $* " == *" all "* ]]; then
  set -- layers addresses orphans words shell man threads includes
  if ! command -v clang-format >/dev/null || ! command -v clang-tidy >/dev/null; then
    die "clang-format and clang-tidy are missing: apt-get install clang-format clang-tidy"
  elif clang-format --version | grep 'version 14\.' >/dev/null; then
    set -- "$@" format tidy
  else
    echo "format, tidy: left to Debian 12, as another clang than 14 formats and finds otherwise"
  fi
fi
for name in "$@"; do
  declare -F "check_$name" >/dev/null || die "no check called '$name': format, tidy, threads, layers, includes, shell, man, addresses, orphans, words, all"
done
bad=()
for name in "$@"; do
  started=$SECONDS
  # A shell of its own, in which `set -e` holds.
  set +e
  output=$(set -e; "check_$name" 2>&1)
  code=$?
  set -e
  if ((code == 0)); then
    echo "$name: OK ($((SECONDS - started)) s)"
  else
    if [[ -n $output ]]; then echo "$output"; fi
    echo "$name: FAILED ($((SECONDS - started)) s)"
    bad+=("$name")
  fi
done
if ((${#bad[@]} > 0)); then
  echo "check.sh: failed: ${bad[*]}" >&2
  exit 1
fi
