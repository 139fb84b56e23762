#!/bin/bash
# libdatasetd.so exports the C API, all of it, and nothing else.
set -euo pipefail
library=$1
header=$2

exported=$(nm -D --defined-only "$library" | awk '{print $NF}' | sort)
declared=$(grep -oE '\bdatasetd_[a-z_]+\(' "$header" | tr -d '(' | sort -u)
if ! diff <(echo "$declared") <(echo "$exported"); then
  echo "FAIL: < is declared in datasetd.h, > is exported by the library"
  exit 1
fi
echo "PASS: $(wc -l <<<"$exported") functions"
