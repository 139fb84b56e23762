#!/bin/bash
# Passes if CASE of the test program SUITE fails, or does not end.
#
#   is_found.sh SUITE CASE
suite=$1 case=$2
# The suite fails as it should: its report must not be taken for this test's.
unset XML_OUTPUT_FILE
timeout --signal=KILL 5 "$suite" --gtest_filter="*$case*" 2>&1
code=$?
if [[ $code -eq 0 ]]; then
  echo "the planted fault was not found by $case"
  exit 1
fi
echo "found: $case ended with $code"
