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

# The floors of the tree, top down: a room knows none above its own. Rooms of one
# floor may know each other, without a circle.
floors=(
  'client/python:_commands client/python:web'
  'client/python:_daemon'
  'client/python:_client'
  'client/python:_push'
  'client/python:_loader'
  'client/python:_feed'
  'client/python:_datasets'
  'client/python:_order'
  'client/python:_batches client/python:_ranks'
  'client/python:_connection client/python:sources client/python:transforms'
  'client/python:ground'
  'client/ctl client/examples'
  'client/c_api'
  'client:client'
  'client/feed'
  'client/connection client/device'
  'server:main'
  'server/metrics'
  'server/service'
  'server/attach server/config server/devices server/log server/rpc server/systemd'
  'server/manifest'
  'server/feed'
  'server/registry'
  'server/load'
  'server/cache server/order server/pipeline server/readers'
  'server/dataset'
  'server/files'
  'cuda:backends'
  'cuda/device cuda/host'
  'cuda/backend'
  'cuda/kernels/host'
  'cuda/kernels/chain cuda/kernels/moves'
  'cuda/kernels/ops'
  'cuda/kernels/program'
  'cuda/kernels/math'
  'proto'
  'base'
)
above='tests|deploy'
for floor in "${floors[@]}"; do
  parts=() names=()
  for room in $floor; do
    if [[ $room == *:* ]]; then
      parts+=("//$room")
    else
      parts+=("//$room/...")
    fi
    names+=("$room")
  done
  expression=${parts[0]}
  for part in "${parts[@]:1}"; do expression+=" + $part"; done
  # The rooms above; and the server and the client know nothing of each other.
  forbidden=$above
  [[ $floor == server* ]] && forbidden+='|client'
  [[ $floor == client* ]] && forbidden+='|server'
  rule "${floor// /, }: nothing above it" "$expression" \
    "^//($forbidden)([/:]|\$)"
  for name in "${names[@]}"; do
    case $name in
      # Their packages hold the top floors, too.
      client:client) above+='|client:client' ;;
      cuda:backends) above+='|cuda:backends' ;;
      server:main) above+='|server:(main|datasetd)' ;;
      *) above+="|$name" ;;
    esac
  done
done

rule "base knows neither gRPC, protobuf nor spdlog" \
  //base/... '^//third_party/(grpc|protobuf|spdlog)'
rule "the arithmetic that kernels share knows no library" \
  //base:checked_math '^//third_party'
rule "cuda knows neither gRPC nor protobuf" \
  //cuda/... '^//third_party/(grpc|protobuf|spdlog)'
rule "the client knows of cuda the table of the driver's functions only" \
  //client/... '^//cuda(:|/(backend|host|kernels)|/device:(device|cuda_|augment))'
rule "what is below the services knows neither gRPC nor spdlog" \
  '//server/files/... + //server/dataset/... + //server/pipeline/... +
   //server/cache/... + //server/load/... + //server/registry/... +
   //server/order/... + //server/feed/...' '^//third_party/(grpc|spdlog)'
rule "readers know no gRPC" \
  //server/readers/... '^//third_party/grpc'
rule "server/attach knows no gRPC" \
  //server/attach/... '^//third_party/grpc'
