#!/bin/bash
# Asks Bazel whether the parts depend on each other only as CONTRIBUTING.md
# says. Writes a line of JSON for each rule to the file, for count_cases.py.
#
#   tests/layers.sh FILE
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
file=$1
: >"$file"

# rule NAME PARTS FORBIDDEN: nothing below the label pattern(s) PARTS may depend
# on a target that matches the expression FORBIDDEN.
rule() {
  local found
  if ! found=$(bazel query --ui_event_filters=-info,-debug --notool_deps \
    --noimplicit_deps "filter('$3', deps($2))"); then
    found="bazel query failed"
  fi
  if [[ -z $found ]]; then
    echo "ok      $1"
    echo "{\"case\": \"$1\", \"result\": \"passed\"}" >>"$file"
  else
    printf 'BROKEN  %s:\n%s\n' "$1" "$found"
    echo "{\"case\": \"$1\", \"result\": \"failed\"}" >>"$file"
  fi
}

rule "base depends on no other part" \
  //base/... '^//(client|cuda|proto|server|tests|deploy)[/:]'
rule "base knows neither gRPC, protobuf nor spdlog" \
  //base/... '^//third_party/(grpc|protobuf|spdlog)'
rule "the arithmetic that kernels share knows no library" \
  //base:checked_math '^//third_party'
rule "proto depends on no other part" \
  //proto/... '^//(client|cuda|server|tests|deploy)[/:]'
rule "cuda depends on no other part" \
  //cuda/... '^//(client|proto|server|tests|deploy)[/:]'
rule "cuda knows neither gRPC nor protobuf" \
  //cuda/... '^//third_party/(grpc|protobuf|spdlog)'
rule "server/core depends on cuda alone" \
  //server/core/... \
  '^//(client|proto|tests|deploy|server:|server/(attach|readers|service))[/:]?'
rule "server/core knows neither gRPC, protobuf nor spdlog" \
  //server/core/... '^//third_party/(grpc|protobuf|spdlog)'
rule "server/readers depends on server/core and cuda" \
  //server/readers/... \
  '^//(client|proto|tests|deploy|server/(attach|service))[/:]?'
rule "server/readers knows no gRPC" \
  //server/readers/... '^//third_party/grpc'
rule "server/readers has protobuf for TFRecords alone" \
  '//server/readers/... - //server/readers:reader -
   //server/readers:tfrecord_reader - //server/readers:tf_features -
   //server/readers:tf_example' '^//third_party/protobuf'
rule "HDF5 is in a process of its own" \
  '//client/... + //server/readers/... + //server:server' '^//third_party/hdf5'
rule "server/attach knows no gRPC" \
  //server/attach/... '^//third_party/grpc'
rule "client does not depend on the server" \
  //client/... '^//server'
rule "server does not depend on the client" \
  //server/... '^//client'
rule "nothing depends on the tests" \
  '//base/... + //client/... + //cuda/... + //proto/... + //server/...' '^//tests'
