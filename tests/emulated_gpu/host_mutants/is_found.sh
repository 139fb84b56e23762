#!/bin/bash
# Passes if CASE fails, or crashes, in the test program MUTANT, and passes in
# PLAIN, which is the same without the fault.
#
#   is_found.sh PLAIN MUTANT CASE [hangs]
#
# With `hangs` it may not end either.
plain=$1 mutant=$2 case=$3
# The suite fails as it should: its report must not be taken for this test's.
unset XML_OUTPUT_FILE
if ! "$plain" --gtest_filter="*$case*" 2>&1; then
  echo "$case fails without the planted fault"
  exit 1
fi
limit=()
found='1|134|139' # a failed assertion, SIGABRT, SIGSEGV
if [[ ${4:-} == hangs ]]; then
  limit=(timeout --signal=KILL 10)
  found+='|137'
fi
"${limit[@]}" "$mutant" --gtest_filter="*$case*" 2>&1
code=$?
if [[ ! $code =~ ^($found)$ ]]; then
  echo "the planted fault was not found by $case, which ended with $code"
  exit 1
fi
echo "found: $case ended with $code"
