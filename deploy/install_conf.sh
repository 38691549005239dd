#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: install_conf.sh FILE TARGET   (by meson install)
set -eu
target=${DESTDIR:-}$2
[ -e "$target" ] || install -D -m 644 "$1" "$target"
