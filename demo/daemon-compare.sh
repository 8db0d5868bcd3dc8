#!/bin/bash
# One FUSE daemon, served by the kernel, by `fuse:` and by `fuse:` behind a cache that is warm: five everyday jobs over a
# small tree. The promise is that nothing is slower than the kernel's FUSE.
#
#   demo/daemon-compare.sh           a table on standard output; some five minutes
#   FILES=2000                       files of the tree, in directories of 100
#   DAEMONS='bindfs sshfs s3fs ceph-fuse'    each that is not there is named; S3FILES=200: of s3fs, whose names cost requests
#   ROUNDS=3                         of each figure the least
#   BYPATH=target/release/bypath
#
# Milliseconds. Needs /dev/fuse and the right to mount; sshfs an sftp-server, s3fs versitygw (VERSITYGW=PROGRAM), ceph-fuse a
# cluster of its own (tests/cluster/mini-ceph.sh).
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
bypath=$(realpath "${BYPATH:-$here/target/release/bypath}") files=${FILES:-2000} rounds=${ROUNDS:-3}
versitygw=${VERSITYGW:-versitygw}
[ -x "$bypath" ] || { echo "daemon-compare.sh: $bypath is not there; run make first" >&2; exit 2; }
[ -w /dev/fuse ] || { echo "daemon-compare.sh: no /dev/fuse: there is nothing to compare with" >&2; exit 2; }
work=$(mktemp -d /dev/shm/bypath-daemons.XXXXXX) || exit 1
store='' cluster=''
end() {
    ! mountpoint -q "$work/kernel" || umount -l "$work/kernel"
    [ -z "$store" ] || kill "$store"
    [ -z "$cluster" ] || "$here/tests/cluster/mini-ceph.sh" stop "$cluster"
    rm -rf --one-file-system "$work"
}
trap end EXIT
cd "$work" || exit 1
mkdir kernel ring cached below

tree() { # FILES: some 4 KB each
    rm -rf tree
    for n in $(seq 0 $(($1 - 1))); do
        [ $((n % 100)) -ne 0 ] || mkdir -p "tree/d$((n / 100))"
        head -c $((n % 8192 + 1)) "$bypath" | base64 >"tree/d$((n / 100))/f$n"
    done
}
jobs=('cp -r' 'find' 'ls -lR' 'grep -r' 'rm -rf')
# run_jobs DIR OUT: milliseconds of each job, a line each. The tree is copied once, looked at once and then for the record:
# all that may be kept is.
cat >run-jobs <<'J'
dir=$1 out=$2 again=$3
ms() {
    local begun=${EPOCHREALTIME/./}
    "$@" >/dev/null 2>>errors || echo "daemon-compare.sh: $* in $dir: $(tail -1 errors)" >&2
    echo $(((${EPOCHREALTIME/./} - begun + 500) / 1000)) >>"$out"
}
: >"$out"
ms cp -r tree "$dir/t"
[ -z "$again" ] || { ls -lR "$dir/t" && grep -r nothing-of-the-kind "$dir/t"; } >/dev/null 2>&1
ms find "$dir/t"
ms ls -lR "$dir/t"
ms grep -rc A "$dir/t"
ms rm -rf "$dir/t"
J
# least WAY COMMAND…: of each job the least of all rounds, into least.WAY.
least() {
    local way=$1 round
    shift
    for round in $(seq "$rounds"); do "$@" || return; mv times "times.$round"; done
    paste -d' ' $(seq -f 'times.%g' "$rounds") | awk '{ least = $1; for (i = 2; i <= NF; i++) if ($i < least) least = $i; print least }' >"least.$way"
}
by_kernel() {
    "$@" || return
    bash run-jobs kernel times ''
    umount kernel
}
ring() { "$bypath" run --no-fuse --mount "${1/\%/$work/ring}" -- bash run-jobs ring times ''; }
images=0
# The end of a session, when all is written back, is not in its times.
cached() {
    local image=$work/cache.$((++images)).img
    "$bypath" run --no-fuse --mount "${1/\%/$work/cached},cache=$image:1G" -- bash run-jobs cached times again && rm -f "$image"*
}
compare() { # NAME SPEC COMMAND-OF-THE-KERNEL'S…: % in SPEC stands for the mount point
    local name=$1 spec=$2
    shift 2
    if ! least kernel by_kernel "$@" || ! least ring ring "$spec" || ! least cached cached "$spec"; then
        echo "| $name | FAILED |"
        return
    fi
    for i in "${!jobs[@]}"; do
        printf '%s\n' "$(sed -n $((i + 1))p least.kernel) $(sed -n $((i + 1))p least.ring) $(sed -n $((i + 1))p least.cached)" |
            awk -v name="$name" -v job="${jobs[i]}" '{
                printf "| %s | `%s` | %d | %d | %d | %.2f | %.2f |%s\n", name, job, $1, $2, $3, $1 / ($2 ? $2 : 1), $1 / ($3 ? $3 : 1), ($2 > $1 ? " SLOWER" : "")
            }'
    done
}
missing() { echo "| $1 | NOT COMPARED: $2 |"; }

echo "daemon-compare.sh: $files files, the least of $rounds rounds; load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
echo '| daemon | job | kernel | `fuse:` | cache, warm | kernel / `fuse:` | kernel / cache |'
echo '|---|---|---|---|---|---|---|'
tree "$files"
for daemon in ${DAEMONS:-bindfs sshfs s3fs ceph-fuse}; do
    command -v "$daemon" >/dev/null || { missing "$daemon" 'it is not installed'; continue; }
    case $daemon in
    bindfs) compare bindfs "fuse:bindfs -f $work/below @:%" bindfs below kernel ;;
    sshfs)
        server=$(ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server 2>/dev/null | head -1)
        [ -n "$server" ] || { missing sshfs 'there is no sftp-server'; continue; }
        printf '#!/bin/sh\nexec %s\n' "$server" >ssh && chmod +x ssh
        compare sshfs "fuse:sshfs -f -o ssh_command=$work/ssh here:$work/below @:%" sshfs -o ssh_command="$work/ssh" "here:$work/below" kernel
        ;;
    s3fs)
        command -v "$versitygw" >/dev/null || { missing s3fs 'there is no versitygw'; continue; }
        mkdir -p gateway/bucket && echo user:secretsecret >pass && chmod 600 pass
        port=$(shuf -i 20000-30000 -n 1)
        ROOT_ACCESS_KEY=user ROOT_SECRET_KEY=secretsecret "$versitygw" --port "127.0.0.1:$port" posix gateway >store.log 2>&1 &
        store=$!
        for _ in $(seq 100); do (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.05; done
        tree "${S3FILES:-200}"
        options=passwd_file=$work/pass,url=http://127.0.0.1:$port,use_path_request_style
        compare "s3fs, ${S3FILES:-200} files" "fuse:s3fs bucket @ -f -o $options:%" s3fs bucket kernel -o "$options"
        tree "$files"
        ;;
    ceph-fuse)
        command -v ceph-mon >/dev/null || { missing ceph-fuse 'there is no ceph-mon for a cluster'; continue; }
        cluster=$work/cluster
        PORT=$(shuf -i 20000-30000 -n 1) timeout 180 "$here/tests/cluster/mini-ceph.sh" start "$cluster" >cluster.log 2>&1 ||
            { missing ceph-fuse "no cluster: $(tail -1 cluster.log)"; continue; }
        keys=(-c "$cluster/ceph.conf" -k "$cluster/keyring")
        on_kernel() { ceph-fuse "${keys[@]}" --debug_client=0/0 --debug_fuse=0/0 kernel >ceph.log 2>&1; }
        compare ceph-fuse "ceph:/:%,conf=$cluster/ceph.conf,keyring=$cluster/keyring" on_kernel
        ;;
    esac
done
