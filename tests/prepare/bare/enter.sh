#!/bin/sh
# enter.sh ROOT BINDS COMMAND...: make ROOT the root of this mount namespace, and run the command in it.
#
# It is the first process of a PID namespace and has mount, cgroup, IPC and UTS namespaces of its own: what it mounts,
# starts and sets ends with it. BINDS is a file with a line "FOLDER PLACE" for each folder to be seen in the root.
set -eu
root=$1 binds=$2
shift 2

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
# This machine's settings stay as they are; those of the network belong to the namespace.
for settings in kernel vm fs; do
    mount --bind "$root/proc/sys/$settings" "$root/proc/sys/$settings"
    mount -o remount,bind,ro "$root/proc/sys/$settings"
done
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    # A group that gives controllers to others holds no process itself.
    mkdir -p "$root/sys/fs/cgroup/init"
    echo $$ > "$root/sys/fs/cgroup/init/cgroup.procs"
else
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    while IFS=: read -r number controllers path; do
        [ "$number" = 0 ] && continue
        name=${controllers#name=}
        options=$controllers
        [ "$name" = "$controllers" ] || options=none,$controllers
        mkdir -p "$root/sys/fs/cgroup/$name"
        mount -t cgroup -o "$options" cgroup "$root/sys/fs/cgroup/$name"
    done < /proc/self/cgroup
fi

while read -r folder place; do
    mkdir -p "$root$place"
    mount --bind "$folder" "$root$place"
done < "$binds"

cd "$root"
mkdir -p .outside
pivot_root . .outside
exec chroot . sh -c 'umount -l /.outside && rmdir /.outside && exec "$@"' sh "$@"
