#!/bin/bash
# Outcomes that is_found.sh takes for found, and that it does not.
set -u
script=$PWD/tests/emulated_gpu/host_mutants/is_found.sh
cd "$TEST_TMPDIR" || exit
code=0

# suite NAME COMMAND: a test program.
suite() {
  printf '#!/bin/bash\n%s\n' "$2" >"$1"
  chmod +x "$1"
}

# expect RESULT PLAIN MUTANT [hangs]
expect() {
  local result=$1 got=found
  suite plain "$2"
  suite mutant "$3"
  "$script" ./plain ./mutant Case "${@:4}" >log 2>&1 || got=missed
  if [[ $got != "$result" ]]; then
    echo "$*: $got"
    cat log
    code=1
  fi
}

expect found 'exit 0' 'exit 1'
expect found 'exit 0' 'kill -ABRT $$'
expect found 'exit 0' 'kill -SEGV $$'
expect missed 'exit 0' 'exit 0'
# The case fails anyway, or no case ran.
expect missed 'exit 1' 'exit 1'
expect missed 'exit 0' 'exit 127'
# Something else may have killed it, such as a lack of memory.
expect missed 'exit 0' 'kill -KILL $$'
expect found 'exit 0' 'kill -KILL $$' hangs
expect found 'exit 0' 'exit 1' hangs
expect missed 'exit 0' 'exit 0' hangs
exit "$code"
