#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and runs each one for a while.
# usage: tests/fuzz/run.sh SECONDS [TARGET...]   such as: tests/fuzz/run.sh 60 fuzz_gguf
# Seeds: tests/fuzz/corpus/TARGET/ (committed) and what make_gguf_seeds writes. What is found stays in build-fuzz/corpus/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

seconds=${1:?usage: tests/fuzz/run.sh SECONDS [TARGET...]}
shift
build=build-fuzz
logs=$build/logs

build_targets() {
    if [ ! -f "$build/build.ninja" ]; then
        CC=${CC:-clang} meson setup "$build" -Dfuzz=true -Dgpu=disabled -Dcpu_best=scalar -Dtests=disabled -Doptimization=1 -Ddebug=true \
            -Db_sanitize=address,undefined -Db_lundef=false \
            -Dc_args='-g1 -fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined' || return 1
    fi
    local programs
    programs=$(ninja -C "$build" -t targets all | sed -n 's#^\(tests/fuzz/[a-z0-9_]*\): .*#\1#p') || return 1
    # shellcheck disable=SC2086
    ninja -C "$build" $programs
}

# One line a target: its name, the runs, and whether it is fine; the log of a failure follows.
run_target() {
    local target=$1 corpus=$build/corpus/$1 log=$logs/$1.log seeds=()
    mkdir -p "$corpus" "$build/found"
    case $target in fuzz_gguf | fuzz_tokenizer) "$build/tests/fuzz/make_gguf_seeds" "$corpus" ;; esac
    [ -d "tests/fuzz/corpus/$target" ] && seeds=("tests/fuzz/corpus/$target")
    if "$build/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/found/$target-" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
        printf '%s: passed, %s runs, %s\n' "$target" "$(awk '/number_of_executed_units/ {print $2}' "$log")" \
            "$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)"
    else
        printf '%s: FAILED\n' "$target"
        tail -n 60 "$log"
        return 1
    fi
}

build_targets || exit 1
mkdir -p "$logs"
[ $# -gt 0 ] || set -- $(cd tests/fuzz && printf '%s\n' fuzz_*.c | sed 's/\.c$//')
passed=0
failed=0
running=()
for target in "$@"; do # as many at a time as there are processors
    run_target "$target" &
    running+=($!)
    if [ ${#running[@]} -ge "$(nproc)" ]; then
        if wait "${running[0]}"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
        running=("${running[@]:1}")
    fi
done
for pid in "${running[@]}"; do
    if wait "$pid"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
