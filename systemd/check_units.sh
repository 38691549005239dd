#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_units.sh LONGWAVE SERVICE SOCKET. Fails when systemd has anything to say of the units, or finds the service more
# exposed than agreed. 'verify' ends with 0 even on unknown keys, so silence counts.
set -eu
command -v systemd-analyze >/dev/null || {
    echo "check_units: systemd-analyze is missing (package systemd)"
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
longwave=$(realpath "$1")
sed "s|^ExecStart=[^ ]*|ExecStart=$longwave|" "$2" >"$work/longwave.service"
cp "$3" "$work/longwave.socket"
said=$(systemd-analyze verify --man=no "$work/longwave.service" "$work/longwave.socket" 2>&1) || true
[ -z "$said" ] || {
    printf 'check_units: systemd-analyze verify says:\n%s\n' "$said"
    exit 1
}
exposure=$(systemd-analyze security --offline=true --no-pager "$work/longwave.service" --threshold=15) || {
    printf '%s\n' "$exposure" | grep -v '^✓'
    exit 1
}
# A check that cannot fail is none.
printf 'NoSuchKey=1\n' >>"$work/longwave.socket"
[ -n "$(systemd-analyze verify --man=no "$work/longwave.socket" 2>&1)" ] || {
    echo "check_units: verify does not see unknown keys"
    exit 1
}
echo "check_units: silent, $(printf '%s\n' "$exposure" | tail -n 1 | tr -cd '0-9.' | sed 's/\.*$//;s/^\.*//') of at most 1.5"
