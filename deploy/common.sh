# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Sourced by the scripts of the project: messages, cache folder, missing packages, Python environments. Nothing here asks
# for input, and everything may run twice.

lw_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lw_cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/longwave
lw_build_packages="gcc libc6-dev meson ninja-build pkg-config python3 libuv1-dev libmicrohttpd-dev libcjson-dev libjemalloc-dev
    libpcre2-dev libutf8proc-dev libinih-dev zlib1g-dev"
lw_model_packages="python3-venv ca-certificates"

say() {
    printf '== %s\n' "$*" >&2
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# install_missing PACKAGE...
install_missing() {
    local package log missing=() as_root=()
    if ! command -v dpkg-query >/dev/null; then
        say "this is not Debian or Ubuntu, going on in the belief that the like of these is installed: $*"
        return 0
    fi
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "neither root nor sudo; run as root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    log=$(mktemp)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >"$log" 2>&1 ||
        say "apt-get update failed, going on with the package lists that are here: $(tail -n 1 "$log")"
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Use-Pty=0 "${missing[@]}" </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "apt-get could not install: ${missing[*]}"
    fi
    rm -f "$log"
}

# python_environment NAME REQUIREMENTS_FILE: prints the folder. Debian's own pip refuses to install outside of one.
python_environment() {
    local folder=$lw_cache/$1 wanted=$2
    if ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
        rm -rf "$folder"
        python3 -m venv "$folder" >&2 || die "python3 -m venv failed"
    fi
    if ! cmp -s "$wanted" "$folder/requirements.txt"; then
        say "installing Python packages into $folder"
        "$folder/bin/pip" install -q --disable-pip-version-check -r "$wanted" </dev/null >&2 ||
            die "pip could not install what $wanted lists"
        cp "$wanted" "$folder/requirements.txt"
    fi
    printf '%s\n' "$folder"
}
