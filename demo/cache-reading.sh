#!/bin/bash
# A tree of many files behind a cache image, beside the kernel's own calls: first time and warm.
#
#   demo/cache-reading.sh            a table on standard output; some four minutes
#   FILES=20000   at least so many files, of TREE=/usr/share
#   ON='disk xfs btrfs bindfs sshfs'  what the tree lies on: DISK=/var/tmp, loop devices over files on it, FUSE over the disk
#   ROUNDS=3      of each figure the least
#   BYPATH=target/release/bypath
#
# Columns, in milliseconds: the kernel's calls with nothing in its caches, and warm; the mount without a cache, warm; the
# cache's first time with nothing in the kernel's caches; its second; a plain image that holds the same. Needs root for
# loop devices and to empty the kernel's caches.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
bypath=${BYPATH:-$here/target/release/bypath} tree=${TREE:-/usr/share} files=${FILES:-20000} rounds=${ROUNDS:-3}
work=$(mktemp -d "${DISK:-/var/tmp}/bypath-reading.XXXXXX") shm=$(mktemp -d /dev/shm/bypath-reading.XXXXXX)
end() {
    for point in "$work"/*/at; do umount -l "$point" 2>/dev/null; done
    rm -rf --one-file-system "$work" "$shm"
}
trap end EXIT
# copy TO: so much of the tree, whole directories; and a git repository over it.
copy() {
    mkdir -p "$1" && (cd "$tree" && find . -xdev \( -type f -o -type l \) -size -200k -print0 | head -z -n "$files" | tar --null -T - -cf -) | tar -xf - -C "$1" 2>/dev/null
    git -C "$1" init -q && (cd "$1" && git add -A . 2>/dev/null && git -c user.name=a -c user.email=a@a commit -qm all) >/dev/null
}
cat >"$shm/job" <<'J'
cd "$1" || exit
begun=$(date +%s%N)
case $2 in
'ls -lR') ls -lR . ;; find) find . ;; 'du -s') du -s . ;; 'grep -rI') grep -rI --exclude-dir=.git zzzqqq . ;; 'git status') git status ;;
esac >/dev/null 2>&1
echo $((($(date +%s%N) - begun) / 1000000)) >"$3"
J
took() { # COMMAND…: milliseconds, without the start and the end of a session
    rm -f "$shm/ms"
    "$@" >/dev/null 2>&1
    cat "$shm/ms" || echo 999999999
}
least() { # HOW COMMAND…: of some rounds
    local best=999999999 how=$1 took round
    shift
    for round in $(seq "$rounds"); do
        "$how"
        took=$(took "$@")
        [ "$took" -lt "$best" ] && best=$took
    done
    echo "$best"
}
as_is() { :; }
cold() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    # What is measured is not the start of the programs.
    "$bypath" run --no-fuse --mount "host:$shm:/cc,cache=$shm/w.img:64M" -- bash "$shm/job" /cc find "$shm/ms"
    git --version >/dev/null; grep -q x /etc/passwd; du -s /etc >/dev/null 2>&1
}
new() {
    cold
    rm -f "$shm/c.img"
}
behind() {
    local ro=,ro
    # A daemon's files have other inode numbers here: for git an index that others wrote is to be read anew once, and noted.
    case $1,$2 in fuse:*,'git status') ro= ;; esac
    "$bypath" run --no-fuse --mount "$1,cache=$shm/c.img:3G$ro,actimeo=max" -- bash "$shm/job" /cc "$2" "$shm/ms"
}
without() { "$bypath" run --no-fuse --mount "$1,ro" -- bash "$shm/job" /cc "$2" "$shm/ms"; }

copy "$work/disk/at"
count=$(find "$work/disk/at" | wc -l)
"$bypath" mkfs "$shm/p.img" --size 4G >/dev/null && "$bypath" import -q "$work/disk/at" "$shm/p.img:/t" >/dev/null
echo "$count names; $(uname -r), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), $(date -I)"
echo
echo '| on | job | kernel, first | kernel, warm | no cache | cache, first | cache, warm | image | first / first | warm / image |'
echo '|---|---|---|---|---|---|---|---|---|---|'
for on in ${ON:-disk xfs btrfs bindfs sshfs}; do
    at=$work/$on/at
    mkdir -p "$at"
    case $on in
    disk) spec="host:$at:/cc" ;;
    xfs | btrfs)
        truncate -s 2G "$work/$on/file" && "mkfs.$on" -q "$work/$on/file" >/dev/null 2>&1 && mount -o loop "$work/$on/file" "$at" || { echo "| $on | not to be had here |" && continue; }
        cp -a "$work/disk/at/." "$at" && spec="host:$at:/cc"
        ;;
    bindfs)
        command -v bindfs >/dev/null && bindfs "$work/disk/at" "$at" || { echo "| $on | not to be had here |" && continue; }
        spec="fuse:bindfs -f $work/disk/at @:/cc"
        ;;
    sshfs)
        server=$(ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server 2>/dev/null | head -1)
        printf '#!/bin/sh\nexec %s\n' "$server" >"$shm/ssh" && chmod +x "$shm/ssh"
        options="-o ssh_command=$shm/ssh,transform_symlinks"
        [ -n "$server" ] && sshfs -o ssh_command="$shm/ssh",transform_symlinks "here:$work/disk/at" "$at" || { echo "| $on | not to be had here |" && continue; }
        spec="fuse:sshfs -f $options here:$work/disk/at @:/cc"
        ;;
    esac
    for job in 'ls -lR' find 'du -s' 'grep -rI' 'git status'; do
        first=$(least cold bash "$shm/job" "$at" "$job" "$shm/ms")
        warm=$(least as_is bash "$shm/job" "$at" "$job" "$shm/ms")
        none=$(least as_is without "$spec" "$job")
        cfirst=$(least new behind "$spec" "$job")
        cwarm=$(least as_is behind "$spec" "$job")
        image=$(least as_is "$bypath" run --no-fuse --mount "$shm/p.img:/cc" -- bash "$shm/job" /cc/t "$job" "$shm/ms")
        ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / (b ? b : 1) }'; }
        echo "| $on | \`$job\` | $first | $warm | $none | $cfirst | $cwarm | $image | $(ratio "$cfirst" "$first") | $(ratio "$cwarm" "$image") |"
    done
    umount -l "$at" 2>/dev/null
    rm -f "$work/$on/file"
done
