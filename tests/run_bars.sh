#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the bars: programs that measure a promise and exit with 0 only if it holds. By hand, on a machine that does nothing else.
# usage: tests/run_bars.sh [NAME...]   all of tests/bars by default
set -uo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/deploy/common.sh"
cd "$lw_root" || exit 1

# shellcheck disable=SC2086
install_missing $lw_build_packages $lw_model_packages
if [ ! -f build-release/build.ninja ]; then
    meson setup build-release -Dbuildtype=release -Dtests=disabled >&2 || exit 1
fi
ninja -C build-release >&2 || exit 1
LONGWAVE_BINARY=$lw_root/build-release/server/longwave
LONGWAVE_TEST_MODEL=$(deploy/fetch_model.sh) || exit 1
LONGWAVE_TEST_GEMMA=$(deploy/fetch_model.sh gemma3) || exit 1
export LONGWAVE_BINARY LONGWAVE_TEST_MODEL LONGWAVE_TEST_GEMMA

names=("$@")
if [ $# -eq 0 ]; then
    for bar in tests/bars/*; do
        [ -f "$bar" ] && [ -x "$bar" ] && names+=("$(basename "$bar")")
    done
fi
held=0
missed=0
for name in "${names[@]}"; do
    limit=840
    [[ $name == soak* ]] && limit=1800 # ten minutes, and all prompts alone before and after them
    output=$(timeout $limit "tests/bars/$name" </dev/null)
    status=$?
    printf '%s: %s\n' "$name" "$(printf '%s\n' "$output" | tail -n 1)"
    if [ $status -eq 0 ]; then
        held=$((held + 1))
    else
        missed=$((missed + 1))
    fi
done
printf '%d bars held, %d missed\n' $held $missed
[ $missed -eq 0 ]
