#!/bin/sh
# The commit, for the release's COMMIT; .bazelrc names this script.
commit=$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)
echo "STABLE_COMMIT ${commit:-unknown}"
