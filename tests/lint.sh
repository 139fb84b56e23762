#!/bin/bash
# Checks the form of the sources: clang-format, codespell, ruff, shellcheck.
#
#   tests/lint.sh [--fix | --tidy] [FILE]
#
#   --fix   changes what a tool can change by itself
#   --tidy  clang-tidy, too, which takes about 20 minutes
#
# Writes a line of JSON for each check to FILE, for count_cases.py. ruff comes
# from PyPI, into the user's cache.
# shellcheck disable=SC2317  # check() calls the functions
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
readonly ruff_version=0.17.6

mode=check
case "${1:-}" in
  --fix | --tidy)
    mode=${1#--}
    shift
    ;;
  -*)
    sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
file=${1:-/dev/null}
: >"$file"
code=0

# case NAME COMMAND...: the command ends with 0.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok      $name"
    echo "{\"case\": \"$name\", \"result\": \"passed\"}" >>"$file"
  else
    echo "BROKEN  $name: tests/lint.sh --fix mends what a tool can mend"
    echo "{\"case\": \"$name\", \"result\": \"failed\"}" >>"$file"
    code=1
  fi
}

sources() {
  git ls-files -z --cached --others --exclude-standard -- "$@"
}

tools=${XDG_CACHE_HOME:-$HOME/.cache}/datasetd-lint/$ruff_version
if [[ ! -x $tools/bin/ruff ]]; then
  /usr/bin/python3 -m venv "$tools" &&
    "$tools/bin/pip" --quiet install "ruff==$ruff_version" || exit
fi

clang_format() {
  sources '*.cc' '*.h' '*.cu' '*.c' | xargs -0 clang-format "$@"
}
# The units that Bazel compiles for this machine; kernels are nvcc's.
clang_tidy() {
  deploy/dev/compile_commands.py &&
    sources '*.cc' ':!tests' |
    xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p .
}
shell() {
  sources '*.sh' .ci/run | xargs -0 shellcheck
}
# Words of code, and words that tests misspell.
spelling() {
  sources '*.md' '*.h' '*.cc' '*.cu' '*.py' '*.proto' '*.sh' '*BUILD' |
    xargs -0 codespell --quiet-level=3 \
      --ignore-words-list=atleast,laod,maks,nd,nmae,openin,statics,te
}

if [[ $mode == fix ]]; then
  clang_format -i
  "$tools/bin/ruff" check --fix --quiet .
fi
# A test that pytest does not run passes without a case.
mains() {
  local file missing=0
  while read -r -d "" file; do
    if ! grep -q __main__ "$file"; then
      echo "$file: has no __main__, so that none of its cases runs"
      missing=1
    fi
  done < <(sources 'tests/integration/*_test.py')
  return "$missing"
}
check "clang-format" clang_format --dry-run -Werror --ferror-limit=3
check "ruff check" "$tools/bin/ruff" check --quiet .
check "shellcheck" shell
check "cases run" mains
check "codespell" spelling
[[ $mode == tidy ]] && check "clang-tidy" clang_tidy
exit "$code"
