#!/bin/bash
# A bucket by `s3:`, by s3fs through the kernel's FUSE, and by s3cmd, on one server: many small files written, a large one
# read in order, names looked at again.
#
#   demo/bucket-compare.sh           a table on standard output; a few minutes
#   FILES=10000                      small files, 1 to 4 KB; S3FSFILES=1000 of them by s3fs, whose figure is taken times ten
#   SIZE=512                         MiB of the large file
#   ROUNDS=3                         of reading, the least
#   VERSITYGW=versitygw              the server: `go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`
#   BYPATH=target/release/bypath
#
# Seconds; what was written is in the store, and compared, when a figure is taken. Needs s3cmd; s3fs and /dev/fuse for its
# column.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
bypath=$(realpath "${BYPATH:-$here/target/release/bypath}") files=${FILES:-10000} size=${SIZE:-512} rounds=${ROUNDS:-3}
s3fsfiles=${S3FSFILES:-$((files < 1000 ? files : 1000))} versitygw=$(command -v "${VERSITYGW:-versitygw}")
die() { echo "bucket-compare.sh: $*" >&2; exit 2; }
[ -x "$bypath" ] || die "$bypath is not there; run make first"
[ -n "$versitygw" ] || die 'there is no versitygw: VERSITYGW=PROGRAM'
command -v s3cmd >/dev/null || die 's3cmd is not installed'
work=$(mktemp -d "${TMPDIR:-/tmp}/bypath-bucket.XXXXXX") || exit 1
store=''
end() {
    ! mountpoint -q "$work/kernel" || umount -l "$work/kernel"
    [ -z "$store" ] || kill "$store"
    rm -rf --one-file-system "$work"
}
trap end EXIT
cd "$work" || exit 1
mkdir -p kernel b gateway/bucket tmp
export AWS_ACCESS_KEY_ID=user AWS_SECRET_ACCESS_KEY=secretsecret AWS_EC2_METADATA_DISABLED=true TMPDIR=$work/tmp
echo user:secretsecret >pass && chmod 600 pass
port=$(shuf -i 20000-30000 -n 1)
ROOT_ACCESS_KEY=user ROOT_SECRET_KEY=secretsecret "$versitygw" --port "127.0.0.1:$port" posix gateway >store.log 2>&1 &
store=$!
for _ in $(seq 100); do (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.05; done
cat >s3cfg <<END
[default]
access_key = user
secret_key = secretsecret
host_base = 127.0.0.1:$port
host_bucket = 127.0.0.1:$port/%(bucket)
use_https = False
check_ssl_certificate = False
END
get() { s3cmd -q --force -c "$work/s3cfg" get "$@"; }
# The store's own time on processors so far, hundredths of a second.
store_ticks() { awk '{ print $14 + $15 }' "/proc/$store/stat"; }
# took COMMAND…: its time, seconds.
took() {
    local begun=${EPOCHREALTIME/./}
    "$@" >/dev/null 2>>errors || die "$*: $(tail -3 errors)"
    awk -v us=$((${EPOCHREALTIME/./} - begun)) 'BEGIN { printf "%.2f", us / 1e6 }'
}
least() { for _ in $(seq "$rounds"); do "$@" && echo; done | sort -n | head -1; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b ? a / b : 0 }'; }
session() { "$bypath" run --no-fuse --mount "s3:http://127.0.0.1:$port/bucket:$work/b$1" -- "${@:2}"; }

python3 - "$files" <<'P'
import os, sys
for n in range(int(sys.argv[1])):
    if n % 100 == 0: os.makedirs("tree/d%03d" % (n // 100))
    with open("tree/d%03d/f%05d" % (n // 100, n), "wb") as f: f.write(b"%d " % n * (n % 400 + 100))
P
echo "bucket-compare.sh: $files files, $size MiB; load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
same() { diff -r "$1" "gateway/bucket/$2" >/dev/null || die "$2 is not what was written"; }
echo '| what | `s3:` | other | |'
echo '|---|---|---|---|'
# Small files: until all of them are in the store. close=later says so by sync -f.
ours=() share=()
for options in '' ,close=later ,cache; do
    ticks=$(store_ticks)
    ours[${#ours[@]}]=$(took session "$options" sh -c 'cp -r tree b/t && sync -f b')
    share[${#share[@]}]=$(($(store_ticks) - ticks))
    same tree t && rm -r gateway/bucket/t
done
theirs=''
if command -v s3fs >/dev/null && [ -w /dev/fuse ]; then
    mkdir few && find tree -type f | sort | head -"$s3fsfiles" | cpio -pdm few 2>/dev/null
    s3fs bucket kernel -o "passwd_file=$work/pass,url=http://127.0.0.1:$port,use_path_request_style" || die 's3fs does not mount'
    theirs=$(took cp -r few/tree kernel/t)
    same few/tree t
    umount kernel && rm -r gateway/bucket/t
    theirs=$(awk -v t="$theirs" -v n="$files" -v few="$s3fsfiles" 'BEGIN { printf "%.1f", t * n / few }')
fi
names=('`cp -r` of small files' '… with `close=later`' '… with `cache`, until all is in the store')
for i in 0 1 2; do
    echo "| ${names[i]} | ${ours[i]} | s3fs ${theirs:-(not there)} | $(ratio "${theirs:-0}" "${ours[i]}") times as fast; the store itself $(ratio "${share[i]}" 100) s of processors |"
done
head -c "$size"M /dev/urandom >large && session '' cp large b/large || die 'the large file is not stored'
read_ours() { took session '' dd if=b/large of=read bs=1M status=none; }
read_cmd() { took get s3://bucket/large read; }
ours=$(least read_ours) && cmp read large || die 'what was read is something else'
cmd=$(least read_cmd) && cmp read large || die 's3cmd reads something else'
echo "| $size MiB read into a file, with the start | $ours | s3cmd get $cmd | $(ratio "$cmd" "$ours") times as fast |"
# Names that were looked at already: a call.
stat='
import os, sys, time
os.stat(sys.argv[1])
least = 1e9
for _ in range(200):
    begun = time.perf_counter_ns()
    for _ in range(100): os.stat(sys.argv[1])
    least = min(least, (time.perf_counter_ns() - begun) / 100)
print("%.2f" % (least / 1000))'
for options in '' ,cache; do
    echo "| warm \`stat\` by Python${options:+, with a cache}, µs | $(session "$options" python3 -c "$stat" b/large 2>/dev/null) | of tmpfs $(: >/dev/shm/bypath-stat && python3 -c "$stat" /dev/shm/bypath-stat; rm /dev/shm/bypath-stat) | |"
done
