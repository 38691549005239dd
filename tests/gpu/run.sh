#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/gpu/run.sh [BUILD [MODEL.gguf ...]]
# Every GPU test with the programs of BUILD (build-gpu), then the short ones under compute-sanitizer where there is one.
# LONGWAVE_PORTABLE_BUILD (BUILD-portable) is a build with -Dgpu_archs=80:90 -Dgpu_ptx=false: the code of older devices.
# The outcome, with card, commit and date, goes to a file in LONGWAVE_GPU_RESULTS (tests/gpu/results).
# LONGWAVE_COMMIT names the commit where there is no git.
set -u
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}
[ $# -gt 0 ] && shift
results=${LONGWAVE_GPU_RESULTS:-tests/gpu/results}
commit=${LONGWAVE_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
date=$(date -u +%F)
mkdir -p "$results"
report=$results/$date-$commit.txt
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo 'no card')
printf '%s, commit %s, %s\n' "$card" "$commit" "$date" >"$report"
failed=0

# run NAME SECONDS COMMAND...: its last line goes into the report.
run() {
    name=$1 limit=$2
    shift 2
    start=$(date +%s)
    timeout "$limit" "$@" >"$log/$name" 2>&1
    status=$?
    [ $status -eq 0 ] || { failed=$((failed + 1)); grep -E 'FAILED|=========|rror' "$log/$name" | head -40; }
    printf '%-24s status %d, %d s: %s\n' "$name" $status $(($(date +%s) - start)) "$(tail -n 1 "$log/$name")" |
        tee -a "$report"
}

# program NAME [BUILD]
program() {
    in=${2:-$build}
    for place in "$in/tests/gpu/$1" "$in/$1"; do [ -x "$place" ] && echo "$place" && return; done
    echo "$1"
}

run kernels 180 "$(program gpu_kernels)"
run attention 180 "$(program gpu_attention)"
run attention_portable 120 "$(program gpu_attention)" --portable
run select 120 "$(program gpu_select)"
run digest 60 "$(program gpu_digest)"
run model 240 "$(program gpu_model)" "$@"
# What devices without kernels of their own run, compiled ahead for this one: forced to compile it, the driver does so to
# cuBLAS too, which has none.
portable=${LONGWAVE_PORTABLE_BUILD:-$build-portable}
run portable_kernels 120 "$(program gpu_kernels "$portable")"
run portable_attention 120 "$(program gpu_attention "$portable")"
run portable_select 120 "$(program gpu_select "$portable")"
run portable_digest 60 "$(program gpu_digest "$portable")"
run portable_model 120 "$(program gpu_model "$portable")" short
if command -v compute-sanitizer >/dev/null; then
    run memcheck_model 120 compute-sanitizer --error-exitcode 9 "$(program gpu_model)" short
    run memcheck_attention 90 compute-sanitizer --error-exitcode 9 "$(program gpu_attention)" --quick
    run racecheck_attention 90 compute-sanitizer --tool racecheck --error-exitcode 9 "$(program gpu_attention)" --quick
    run racecheck_kernels 120 compute-sanitizer --tool racecheck --error-exitcode 9 "$(program gpu_kernels)" race
    run memcheck_digest 60 compute-sanitizer --error-exitcode 9 "$(program gpu_digest)" short
    run racecheck_digest 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$(program gpu_digest)" short
    run memcheck_kernels 90 compute-sanitizer --error-exitcode 9 "$(program gpu_kernels)" short
fi
echo "$failed programs failed" | tee -a "$report"
[ $failed -eq 0 ]
