#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds with warnings as errors and runs all quick tests. Prints the runners' own closing lines.
# usage: tests/run.sh [STAGE...]   stages: unit sanitize threads fuzz e2e clients, all of them by default; page by its name only
set -uo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/deploy/common.sh"
cd "$lw_root" || exit 1

test_packages="clang libclang-rt-dev libcriterion-dev json-schema-test-suite systemd groff-base" # systemd-analyze: units
logs=$lw_root/build-logs
passed=()
failed=()
started_at=$SECONDS

# setup FOLDER OPTION...: configures once; an older configuration with other options is made anew.
setup() {
    local folder=$1
    shift
    if [ "$(cat "$folder/run_options" 2>/dev/null)" != "$*" ]; then
        rm -rf "$folder"
        meson setup "$folder" -Dwerror=true "$@" || return 1
        printf '%s' "$*" >"$folder/run_options"
    fi
}

# The best set of CPU kernels that runs here: others under a sanitizer would be compiled for nothing.
cpu_best() {
    local flags best=scalar
    flags=" $(sed -n 's/^flags[^:]*://p;T;q' /proc/cpuinfo) "
    [[ $flags == *' avx2 '* ]] && best=avx2
    [[ $flags == *' avx512_vnni '* ]] && best=avx512
    [[ $flags == *' amx_int8 '* ]] && best=amx
    printf '%s' "$best"
}

# Compiles in half the time of -O2 -g under sanitizers, and reports still name functions and lines.
watched=(-Doptimization=1 -Ddebug=true -Dc_args=-g1 "-Dcpu_best=$(cpu_best)")

# Without nvcc the CUDA parts are left out; one architecture is enough to see that they compile and link.
stage_unit() {
    local model gemma
    model=$(deploy/fetch_model.sh) && gemma=$(deploy/fetch_model.sh gemma3) || return 1
    setup build-run -Dgpu=auto -Dgpu_archs=90a -Dgpu_ptx=false && ninja -C build-run || return 1
    LONGWAVE_TEST_MODEL=$model LONGWAVE_TEST_GEMMA=$gemma meson test -C build-run --no-rebuild -v --no-suite tsan
}

# Criterion passes over what LeakSanitizer says, so reports go to files, and a file is a failure. That this finds anything is
# shown by must_fail, which leaks.
stage_sanitize() {
    setup build-asan -Dgpu=disabled "${watched[@]}" -Db_sanitize=address,undefined && ninja -C build-asan || return 1
    rm -f "$logs"/asan.* "$logs"/leak.*
    ASAN_OPTIONS=log_path=$logs/leak build-asan/tests/must_fail --filter '*/leaks'
    grep -qs 'detected memory leaks' "$logs"/leak.* || {
        printf 'LeakSanitizer does not work here\n'
        return 1
    }
    ASAN_OPTIONS=log_path=$logs/asan:detect_stack_use_after_return=1:strict_string_checks=1 \
        UBSAN_OPTIONS=log_path=$logs/asan:print_stacktrace=1:halt_on_error=1 \
        meson test -C build-asan --no-rebuild -v --no-suite checks --no-suite tsan --timeout-multiplier 3
    local status=$?
    sanitizer_is_silent asan && return $status
}

sanitizer_is_silent() {
    local report
    report=$(find "$logs" -name "$1.*" -size +0 | head -n 1)
    [ -z "$report" ] && return 0
    head -n 60 "$report"
    return 1
}

# The memory layout that ThreadSanitizer wants is not given under full address randomisation.
stage_threads() {
    local plain_layout=()
    setarch -R true 2>/dev/null && plain_layout=(setarch -R)
    setup build-tsan -Dgpu=disabled -Dtests=disabled "${watched[@]}" -Db_sanitize=thread || return 1
    local programs
    programs=$(ninja -C build-tsan -t targets all | sed -n 's#^\(tests/tsan/tsan_[a-z0-9_]*\): .*#\1#p')
    # shellcheck disable=SC2086
    ninja -C build-tsan $programs || return 1
    TSAN_OPTIONS=halt_on_error=1 "${plain_layout[@]}" meson test -C build-tsan --no-rebuild -v --suite tsan --timeout-multiplier 3
}

stage_fuzz() {
    tests/fuzz/run.sh 15
}

# NAME [OPTION...]: pytest of tests/NAME in an environment of its own.
run_pytest() {
    local name=$1 python model
    shift
    python=$(python_environment "$name" "tests/$name/requirements.txt")/bin/python || return 1
    model=$(deploy/fetch_model.sh) || return 1
    setup build-run -Dgpu=auto -Dgpu_archs=90a -Dgpu_ptx=false && ninja -C build-run || return 1
    LONGWAVE_BINARY=$lw_root/build-run/server/longwave LONGWAVE_TEST_MODEL=$model \
        "$python" -m pytest -q -p no:cacheprovider "$@" "tests/$name"
}

stage_e2e() {
    run_pytest e2e
}

# Real client libraries, of which some want another version of openai's than tests/e2e has.
stage_clients() {
    run_pytest clients -W ignore
}

# The page at /, in a browser. Not one of the default: Chromium is 300 MB, and two cores need more than a minute.
stage_page() {
    install_missing chromium chromium-driver fonts-dejavu-core
    run_pytest page
}

# What the runners say at their end: Criterion, our own programs and checks, Meson, libFuzzer, pytest.
closing_lines() {
    grep -aE '^\[====\] Synthesis|[0-9]+ passed, [0-9]+ failed|^check_|^(Ok|Fail|Timeout):|^fuzz_|^=* ?[0-9]+ passed' "$1"
}

run_stage() {
    local name=$1 log=$logs/$1.log began=$SECONDS
    printf '\n== %s\n' "$name"
    if "stage_$name" </dev/null >"$log" 2>&1 && closing_lines "$log"; then # a stage that ran nothing has not passed
        passed+=("$name")
        printf '== %s: passed in %d s\n' "$name" $((SECONDS - began))
    else
        tail -n 150 "$log"
        closing_lines "$log"
        failed+=("$name")
        printf '== %s: FAILED in %d s, all of it is in %s\n' "$name" $((SECONDS - began)) "$log"
    fi
}

stages=("$@")
[ $# -gt 0 ] || stages=(unit sanitize threads fuzz e2e clients)
for stage in "${stages[@]}"; do
    declare -F "stage_$stage" >/dev/null || die "unknown stage '$stage'"
done
# shellcheck disable=SC2086
install_missing $lw_build_packages $lw_model_packages $test_packages
mkdir -p "$logs"
for stage in "${stages[@]}"; do
    run_stage "$stage"
done
printf '\ntests/run.sh: %d stages passed, %d failed%s, %d s\n' ${#passed[@]} ${#failed[@]} \
    "${failed:+ (${failed[*]})}" $((SECONDS - started_at))
[ ${#failed[@]} -eq 0 ]
