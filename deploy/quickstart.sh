#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to an answering server: installs what is missing, builds, fetches a small model, starts the server,
# asks one question. Run again, it does only what is not done yet.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage="usage: deploy/quickstart.sh [--once]

  --once    stop the server after the answer

environment:
  LONGWAVE_PORT     port on 127.0.0.1 (8080)
  LONGWAVE_MODEL    another GGUF file to serve (a small one is fetched otherwise)
  LONGWAVE_BUILD_OPTIONS
                    for meson setup, such as -Dgpu=disabled; counts when nothing is built yet"

once=
case "${1-}" in
"") ;;
--once) once=yes ;;
-h | --help)
    printf '%s\n' "$usage"
    exit 0
    ;;
*) die "unknown argument '$1'
$usage" ;;
esac
[ $# -le 1 ] || die "too many arguments"

port=${LONGWAVE_PORT:-8080}
case $port in
*[!0-9]* | ??????*) die "LONGWAVE_PORT is '$port', not a port" ;;
esac
[ "$port" -ge 1 ] && [ "$port" -le 65535 ] || die "LONGWAVE_PORT is '$port', not between 1 and 65535"
url=http://127.0.0.1:$port
binary=$lw_root/build-release/server/longwave
pid_file=$lw_cache/serve-$port.pid # "process model"
log_file=$lw_cache/serve-$port.log
model=

build() {
    # shellcheck disable=SC2086
    install_missing $lw_build_packages $lw_model_packages curl
    if [ ! -f "$lw_root/build-release/build.ninja" ]; then
        say "configuring $lw_root/build-release"
        # shellcheck disable=SC2086
        meson setup "$lw_root/build-release" "$lw_root" -Dbuildtype=release -Dtests=disabled \
            ${LONGWAVE_BUILD_OPTIONS-} >&2 </dev/null
    fi
    say "building"
    ninja -C "$lw_root/build-release" server/longwave >&2 </dev/null
}

# A process that has ended but was not waited for still takes signals; its executable is gone, though.
is_alive() {
    readlink "/proc/$1/exe" >/dev/null 2>&1
}

# Sets pid when the server that an earlier run started is still there.
find_running() {
    local known_model
    [ -f "$pid_file" ] && read -r pid known_model <"$pid_file" || return 1
    is_alive "$pid" && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = longwave ] || return 1
    [ "$known_model" = "$model" ] || die "process $pid serves $known_model on port $port; stop it first: kill $pid"
}

port_is_taken() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

stop_server() {
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
        is_alive "$pid" || break
        sleep 0.1
    done
    rm -f "$pid_file"
}

start_server() {
    port_is_taken && die "port $port is in use by another program; take another: LONGWAVE_PORT=8081 deploy/quickstart.sh"
    say "starting longwave serve on $url"
    setsid "$binary" serve --model "$model" --host 127.0.0.1 --port "$port" >"$log_file" 2>&1 </dev/null &
    pid=$!
    trap '[ $? -eq 0 ] || stop_server' EXIT
    printf '%s %s\n' "$pid" "$model" >"$pid_file"
}

wait_until_healthy() {
    for _ in $(seq 600); do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/health" || true)" = 200 ] && return 0
        is_alive "$pid" || die "the server ended; its log $log_file says:
$(tail -n 20 "$log_file")"
        sleep 0.1
    done
    die "no answer from $url/health within 60 seconds; see $log_file"
}

ask() {
    local question="What is the capital of France?"
    say "asking over $url/v1/chat/completions: $question"
    curl -sS -N "$url/v1/chat/completions" -H 'Content-Type: application/json' -d '{
        "messages": [{"role": "system", "content": "You are a helpful assistant."},
                     {"role": "user", "content": "'"$question"'"}],
        "stream": true, "temperature": 0, "max_tokens": 64}' | python3 "$lw_root/deploy/print_stream.py"
}

build
mkdir -p "$lw_cache"
if [ -n "${LONGWAVE_MODEL-}" ]; then
    model=$(realpath -e -- "$LONGWAVE_MODEL") || die "LONGWAVE_MODEL names no file: $LONGWAVE_MODEL"
else
    model=$("$lw_root/deploy/fetch_model.sh")
fi
if find_running; then
    say "longwave already runs on $url (process $pid)"
else
    start_server
fi
wait_until_healthy
ask
if [ -n "$once" ]; then
    stop_server
    say "stopped"
    exit 0
fi
cat >&2 <<END

The server goes on at $url/v1 (process $pid, log $log_file).
  in a browser:   $url/
  stop it:        kill $pid
  another model:  kill $pid; LONGWAVE_MODEL=FILE.gguf deploy/quickstart.sh
  by hand:        $binary serve --model FILE.gguf --port $port
  all options:    $binary serve --help
END
