#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots a Debian with systemd in namespaces of its own, over a folder that stays as it is. Nothing of it is seen outside, and
# it has no network but a loopback.
# usage: boot.sh ROOT WORK    ROOT: a debootstrapped folder with systemd-sysv; WORK: an empty one, for what is written
# WORK/init.pid is the process to enter with: nsenter -a -t PID. SIGRTMIN+4 powers it off.
set -euo pipefail

root=$(realpath -- "$1")
work=$(realpath -- "$2")
if [ "${3-}" != inside ]; then
    exec unshare -m -p -f -u -i -n -C --propagation private "$0" "$root" "$work" inside
fi

mkdir -p "$work/upper" "$work/overlay" "$work/new"
mount -t tmpfs -o mode=755,size=4g tmpfs "$work/overlay" # an overlay takes no upper folder of another overlay
mkdir "$work/overlay/upper" "$work/overlay/work"
mount -t overlay -o "lowerdir=$root,upperdir=$work/overlay/upper,workdir=$work/overlay/work" longwave "$work/new"
cd "$work/new"
mkdir -p run/host sys proc dev
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys proc/sys # the kernel is not ours
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup 2>/dev/null || true
umount sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s /proc/self/fd dev/fd
ln -s null dev/console
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir run/share
mount --bind "$work" run/share
ip link set lo up 2>/dev/null || true
hostname longwave-test
mkdir -p old
pivot_root . old
umount -l old
rmdir old 2>/dev/null || true
mount --make-rshared / # as systemd has it where it is not in a container: credentials come by propagation
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=longwave-test /sbin/init --log-target=journal --show-status=0
