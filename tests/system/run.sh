#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The life of the package on a machine of its own: a Debian with systemd, booted in namespaces. As root.
# usage: tests/system/run.sh [TEST...]   all of them by default, in their order; each needs 'install' first
# environment: LONGWAVE_DEB (built otherwise), LONGWAVE_NEWER_DEB, LONGWAVE_TEST_MODEL, LONGWAVE_SYSTEM_ROOT (debootstrapped
#              into the cache otherwise), LONGWAVE_SUITE (bookworm)
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../deploy/common.sh"

[ "$(id -u)" -eq 0 ] || die "only root can make a machine of namespaces"
suite=${LONGWAVE_SUITE:-bookworm}
root=${LONGWAVE_SYSTEM_ROOT:-$lw_cache/system-$suite}
work=$(mktemp -d)
init=
failed=()
passed=0

make_root() {
    local needed
    [ -x "$root/sbin/init" ] && return 0
    install_missing debootstrap procps util-linux
    needed=$(dpkg-deb -f "$deb" Depends | sed 's/([^)]*)//g; s/ //g')
    say "making $root"
    rm -rf "$root"
    debootstrap --variant=minbase --include="systemd,systemd-sysv,curl,$needed" "$suite" "$root" >"$work/debootstrap.log" 2>&1 ||
        die "debootstrap failed: $(tail -n 3 "$work/debootstrap.log")"
}

# The second package is the first one with a higher version.
make_packages() {
    local version
    version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$lw_root/meson.build")
    export LONGWAVE_DEB_OPTIONS=${LONGWAVE_DEB_OPTIONS--Dgpu=disabled}
    deb=${LONGWAVE_DEB:-$("$lw_root/deploy/deb.sh" "$work" 2>"$work/deb.log")} &&
        newer=${LONGWAVE_NEWER_DEB:-$(LONGWAVE_DEB_VERSION=$version+1 "$lw_root/deploy/deb.sh" "$work" 2>>"$work/deb.log")} ||
        die "no package: $(tail -n 5 "$work/deb.log")"
    model=${LONGWAVE_TEST_MODEL:-$("$lw_root/deploy/fetch_model.sh")} || die "no model"
    mkdir "$work/box"
    cp "$deb" "$work/box/longwave.deb"
    cp "$newer" "$work/box/newer.deb"
    cp "$model" "$work/box/model.gguf"
}

box() {
    nsenter -a -t "$init" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"
}

boot() {
    local i
    "$here/boot.sh" "$root" "$work/box" >"$work/boot.log" 2>&1 &
    unshare_pid=$!
    for i in $(seq 100); do
        init=$(pgrep -P "$unshare_pid" || true)
        [ -n "$init" ] && [ "$(cat "/proc/$init/comm" 2>/dev/null)" = systemd ] &&
            box systemctl is-system-running --wait 2>/dev/null | grep -qE 'running|degraded' && return 0
        sleep 0.2
    done
    cat "$work/boot.log" >&2
    die "the machine does not boot"
}

power_off() {
    [ -n "$init" ] && kill -0 "$init" 2>/dev/null || return 0
    kill -s RTMIN+4 "$init"
    for _ in $(seq 100); do
        kill -0 "$init" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$init" 2>/dev/null || true
    wait "$unshare_pid" 2>/dev/null
}

finish() {
    power_off
    rm -rf "$work"
}
trap finish EXIT

# ---- what the tests ask ----

url=http://127.0.0.1:8080

property() {
    box systemctl show -P "$1" "${2:-longwave.service}"
}

# wait_for SECONDS COMMAND...
wait_for() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}

is_active() {
    [ "$(property ActiveState)" = active ]
}

status_of() {
    box curl -s -o /dev/null -w '%{http_code}' --max-time 60 "$@"
}

# chat TOKENS [CURL OPTION...]: prints the stream or the answer.
chat() {
    local n=$1
    shift
    box curl -sS -N --max-time 600 "$url/v1/chat/completions" -H 'Content-Type: application/json' "$@" -d '{
        "messages": [{"role": "system", "content": "You are a helpful assistant."},
                     {"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0, "max_tokens": '"$n"', "stream": '"${stream:-false}"', "ignore_eos": '"${stream:-false}"'}'
}

# The drain is as long as an answer may take on a machine that is busy with other things.
settings() {
    printf '%s\n' '[model]' 'model = /var/lib/longwave/models/model.gguf' 'host_memory = 1G' '[server]' \
        'session_dir = /var/lib/longwave/sessions' 'drain_timeout = 600' "$@" | box tee /etc/longwave/longwave.conf >/dev/null
}

drop_in() {
    box mkdir -p /etc/systemd/system/longwave.service.d
    printf '[Service]\n%s\n' "$@" | box tee "/etc/systemd/system/longwave.service.d/test.conf" >/dev/null
    box systemctl daemon-reload
}

# Each may be one line; the first one that does not hold fails the test.
check() {
    "$@" && return 0
    printf 'does not hold: %s\n' "$*"
    exit 1
}

same() {
    [ "$1" = "$2" ] && return 0
    printf "'%s', not '%s'\n" "$1" "$2"
    return 1
}

# ---- the tests; each in a subshell ----

test_install() {
    check box dpkg -i /run/share/longwave.deb
    check box getent passwd longwave
    check box test -d /var/lib/longwave/models
    check same "$(box stat -c %a:%U /etc/longwave/api-keys)" 600:root
    check same "$(box stat -c %a:%U /etc/longwave/longwave.conf)" 644:root
    check same "$(property ActiveState)" inactive
    check same "$(box longwave --version)" "longwave $(box dpkg-query -W -f '${Version}' longwave)"
    check same "$(box sh -c 'systemd-analyze verify --man=no longwave.service longwave.socket 2>&1')" ""
    check box sh -c 'zcat /usr/share/man/man1/longwave.1.gz /usr/share/man/man5/longwave.conf.5.gz | grep -q "OPTIONS"'
    check same "$(box sh -c 'cd / && md5sum --quiet -c /var/lib/dpkg/info/longwave.md5sums')" ""
    box cp /run/share/model.gguf /var/lib/longwave/models/model.gguf
    settings
}

test_start() {
    check box systemctl start longwave.service
    check same "$(status_of $url/readyz)" 200 # so ready means ready
    check grep -q "^serving '" <<<"$(property StatusText)"
    check grep -q Paris <<<"$(chat 12)"
    check box systemctl stop longwave.service
    check same "$(property Result)" success
}

test_sandbox() {
    local pid status
    check box systemctl start longwave.service
    pid=$(property MainPID)
    status=$(box cat "/proc/$pid/status")
    check grep -qP '^CapEff:\t0+$' <<<"$status"
    check grep -qP '^CapBnd:\t0+$' <<<"$status"
    check grep -qP '^NoNewPrivs:\t1' <<<"$status"
    check grep -qP '^Seccomp:\t2' <<<"$status"
    check same "$(box stat -c %U "/proc/$pid")" longwave
    check box sh -c "! nsenter -t $pid -m touch /var/lib/longwave/models/x 2>/dev/null"
    check box sh -c "! nsenter -t $pid -m sh -c 'ls -A ~root 2>/dev/null' | grep -q ."
    check box systemctl stop longwave.service
}

test_socket() {
    check box systemctl start longwave.socket
    check same "$(property ActiveState)" inactive
    check grep -q Paris <<<"$(chat 12)" # which starts the service, and waits for it
    check is_active
}

test_reload() {
    local pid
    pid=$(property MainPID)
    settings 'max_output_tokens = 8'
    check box systemctl reload longwave.service
    reloaded() { same "$(chat 9 -o /dev/null -w '%{http_code}')" 400 >/dev/null; }
    check wait_for 10 reloaded
    check grep -q Paris <<<"$(chat 8)"
    check same "$(property MainPID)" "$pid"
    settings
    check box systemctl reload longwave.service
}

test_keys() {
    settings 'api_key_file = credential:api-keys'
    check box sh -c '! systemctl restart longwave.service 2>/dev/null' # there is no key yet: not open to all
    printf 'test:secret\n' | box tee /etc/longwave/api-keys >/dev/null
    box systemctl reset-failed longwave.service longwave.socket
    check box systemctl restart longwave.socket
    check box systemctl restart longwave.service
    check same "$(chat 8 -o /dev/null -w '%{http_code}')" 401
    check grep -q Paris <<<"$(chat 8 -H 'Authorization: Bearer secret')"
    check box sh -c "! setpriv --reuid longwave --regid longwave --clear-groups cat /etc/longwave/api-keys 2>/dev/null"
    settings
    check box systemctl restart longwave.service
}

test_kill() {
    local pid
    pid=$(property MainPID)
    check box sh -c "kill -9 $pid"
    check grep -q Paris <<<"$(chat 12)" # the socket keeps who comes meanwhile
    check is_active
    check test "$(property MainPID)" != "$pid"
    check test "$(property NRestarts)" -ge 1
}

test_watchdog() {
    local pid
    drop_in WatchdogSec=3
    check box systemctl restart longwave.service
    pid=$(property MainPID)
    sleep 5 # it is fed
    check same "$(property MainPID)" "$pid"
    check box sh -c "kill -STOP $pid"
    restarted() { test "$(property MainPID)" != "$pid" && is_active; }
    check wait_for 30 restarted
    check grep -q 'Watchdog timeout' <<<"$(box journalctl -u longwave --no-pager -n 100)"
    check grep -q Paris <<<"$(chat 12)"
    drop_in
}

test_damaged_model() {
    local pid
    box systemctl reset-failed longwave.service # the limit of starts counts those above too
    pid=$(property MainPID)
    check box cp /run/share/model.gguf /var/lib/longwave/models/next
    check box truncate -s 1M /var/lib/longwave/models/model.gguf
    ended() { test "$(property MainPID)" != "$pid"; }
    check wait_for 20 ended
    check grep -q 'ending: .*was cut from' <<<"$(box journalctl -u longwave --no-pager -n 50)"
    check box mv /var/lib/longwave/models/next /var/lib/longwave/models/model.gguf
    check wait_for 30 is_active # by itself
    check grep -q Paris <<<"$(chat 12)"
}

test_full_disk() {
    local i answer
    box mkdir -p /var/log/longwave
    check box systemctl stop longwave.socket longwave.service
    check box mount -t tmpfs -o size=64k,mode=700,uid="$(box id -u longwave)" tmpfs /var/lib/longwave/sessions
    check box mount -t tmpfs -o size=16k tmpfs /var/log/longwave
    drop_in StandardError=append:/var/log/longwave/log
    check box systemctl start longwave.service
    for i in $(seq 80); do check grep -q '"total_tokens"' <<<"$(chat 1)"; done
    check grep -qE '^longwave_log_lines_lost_total.* [1-9]' <<<"$(box curl -s $url/metrics)"
    answer=$(box curl -s "$url/v1/sessions/x/save" -H 'Content-Type: application/json' -d '{
        "messages": [{"role": "system", "content": "You are a helpful assistant."},
                     {"role": "user", "content": "What is the capital of France?"}]}')
    check grep -q 'No space left on device' <<<"$answer"
    check same "$(box ls -A /var/lib/longwave/sessions)" ""
    check same "$(status_of $url/readyz)" 200
    check box systemctl stop longwave.service
    check box umount /var/lib/longwave/sessions /var/log/longwave
    box rm -rf /var/log/longwave
    drop_in
    check box systemctl start longwave.socket longwave.service
}

test_upgrade() {
    local pid streamed asked
    pid=$(property MainPID)
    stream=true chat 300 >"$work/stream" &
    streamed=$!
    (
        while [ ! -e "$work/upgraded" ]; do chat 2 -o /dev/null -w '%{http_code}\n'; done
    ) >"$work/codes" &
    asked=$!
    sleep 1
    check box dpkg -i /run/share/newer.deb
    touch "$work/upgraded"
    wait $streamed $asked
    check grep -q '"finish_reason":"length"' "$work/stream" # the old process answered to the end
    check grep -qx 'data: \[DONE\]' "$work/stream"
    check same "$(sort -u "$work/codes")" 200 # and nobody was refused
    check is_active
    check test "$(property MainPID)" != "$pid"
    check grep -q 'session_dir' <<<"$(box cat /etc/longwave/longwave.conf)" # what was set stays
    check grep -q '+1$' <<<"$(box dpkg-query -W -f '${Version}' longwave)"
}

test_stop_with_requests() {
    local streamed
    stream=true chat 300 >"$work/stopped" &
    streamed=$!
    wait_for 20 grep -q content "$work/stopped"
    check box systemctl stop longwave.socket longwave.service
    wait $streamed
    check grep -q '"finish_reason":"length"' "$work/stopped"
    check same "$(property Result)" success
    check same "$(property ActiveState)" inactive
}

test_purge() {
    check box systemctl enable --now longwave.socket longwave.service
    check box dpkg --purge longwave
    check same "$(box systemctl list-units --all --no-legend 'longwave*' | grep -v not-found)" ""
    check box test -f /var/lib/longwave/models/model.gguf # not the package's
    check same "$(box sh -c "find / -xdev -name '*longwave*' -not -path '/proc/*' -not -path '/run/*' | sort")" "/etc/systemd/system/longwave.service.d
/var/lib/longwave"
    box rm -rf /etc/systemd/system/longwave.service.d
    box dpkg -i /run/share/newer.deb
    box rm /var/lib/longwave/models/model.gguf
    check box dpkg --purge longwave
    check box sh -c '! getent passwd longwave && ! test -e /var/lib/longwave'
}

tests=("$@")
[ $# -gt 0 ] || tests=(install start sandbox socket reload keys kill watchdog damaged_model full_disk upgrade stop_with_requests
    purge)
make_packages
make_root
boot
for name in "${tests[@]}"; do
    if ("test_$name") >"$work/$name.log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok %s\n' "$name"
    else
        failed+=("$name")
        printf 'not ok %s\n' "$name"
        tail -n 8 "$work/$name.log"
        box journalctl -u longwave --no-pager -n 15 -o cat
    fi
done
printf '%d passed, %d failed\n' $passed ${#failed[@]}
[ ${#failed[@]} -eq 0 ]
