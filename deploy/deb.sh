#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds longwave_VERSION_ARCH.deb from this tree: for the Debian or Ubuntu that it runs on. The same sources give the same
# bytes. With nvcc the CUDA parts go in too; the libraries of NVIDIA are looked for when the program runs, so the package needs
# none and falls back to the CPU without them.
# usage: deploy/deb.sh [FOLDER]   where the package goes; the current folder by default. Prints its path.
# environment: LONGWAVE_DEB_VERSION (the project's), LONGWAVE_DEB_OPTIONS (for meson setup, such as -Dgpu=disabled),
#              SOURCE_DATE_EPOCH (of the last commit)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=$(realpath -e -- "${1:-.}") && [ -d "$target" ] && [ -w "$target" ] || die "${1:-.} is no folder that can be written to"
# shellcheck disable=SC2086
install_missing $lw_build_packages dpkg-dev binutils
build=$lw_root/build-deb
stage=$build/package
arch=$(dpkg --print-architecture)
options="--prefix=/usr --sysconfdir=/etc --localstatedir=/var -Dbuildtype=release -Dtests=disabled -Dsystemd=enabled
    ${LONGWAVE_DEB_OPTIONS-}"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$lw_root" log -1 --format=%ct 2>/dev/null || echo 1700000000)}
export LC_ALL=C TZ=UTC
umask 022

build_all() {
    if [ "$(cat "$build/deb_options" 2>/dev/null)" != "$options" ]; then
        rm -rf "$build"
        # No path of this machine in the binary, or two builds would differ.
        # shellcheck disable=SC2086
        CFLAGS="${CFLAGS-} -ffile-prefix-map=$lw_root=." meson setup "$build" "$lw_root" $options
        printf '%s' "$options" >"$build/deb_options"
    fi
    ninja -C "$build" package
    rm -rf "$stage"
    DESTDIR=$stage meson install -C "$build" --no-rebuild
}

# Stripped, compressed and dated as Debian wants it.
finish_files() {
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$stage/usr/bin/longwave"
    find "$stage/usr/share/man" -type f -exec gzip -9n {} +
    mkdir -p "$stage/DEBIAN"
    mv "$stage/usr/share/doc/longwave/LICENSE" "$stage/usr/share/doc/longwave/copyright"
    install -m 600 "$lw_root/deploy/debian/api-keys" "$stage/etc/longwave/api-keys"
    install -m 755 "$lw_root"/deploy/debian/{postinst,prerm,postrm} "$stage/DEBIAN/"
    printf '%s\n' /etc/longwave/longwave.conf /etc/longwave/api-keys >"$stage/DEBIAN/conffiles"
}

# What the binary is linked with, with the versions that Debian's symbols files name.
dependencies() {
    local work
    work=$(mktemp -d)
    mkdir "$work/debian"
    printf 'Source: longwave\n\nPackage: longwave\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O -e"$stage/usr/bin/longwave") | sed -n 's/^shlibs:Depends=//p'
    rm -rf "$work"
}

write_control() {
    local version depends
    version=${LONGWAVE_DEB_VERSION:-$(sed -n "s/^  version: '\(.*\)',/\1/p" "$lw_root/meson.build")}
    depends=$(dependencies)
    [ -n "$depends" ] || die "dpkg-shlibdeps found no dependencies"
    cat >"$stage/DEBIAN/control" <<END
Package: longwave
Version: $version
Architecture: $arch
Maintainer: The longwave authors <longwave@localhost>
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$stage" | cut -f1)
Depends: $depends
Recommends: systemd
Section: net
Priority: optional
Description: serves GGUF language models over the OpenAI HTTP API
 One native daemon that answers chat and completion requests with a transformer
 from a GGUF file, on an NVIDIA GPU where there is one or on the CPU, and keeps
 very long contexts fast by attending to what matters of them.
END
    (cd "$stage" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
    chmod 644 "$stage/DEBIAN"/{control,conffiles,md5sums}
    package=$target/longwave_${version}_$arch.deb
}

build_all >&2 </dev/null
finish_files
write_control
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --uniform-compression -Zxz -z6 --build "$stage" "$package" >&2
printf '%s\n' "$package"
