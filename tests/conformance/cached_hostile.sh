#!/bin/bash
# own
# needs: python3 setsid flock
# seconds: 60
# Goal: what others can put into a cached directory gives them nothing: a marker that is a FIFO or another user's, and a
# journal that is damaged, are refused by name; nothing waits, nothing is silent, and the journal is kept.
# Method: each of them, met by sessions and by each verb of `bypath cache`.
set -u
failed=0
fail() { echo "$*" && failed=1; }
image=$PWD/c.img
disk=$(mktemp -d /var/tmp/bypath-hostile.XXXXXX) && trap 'rm -rf "$disk"' EXIT && cd "$disk" || exit 1
point=$PWD/m journal=$PWD/.low.bypath-journal
case $(stat -f -c %T .) in tmpfs | ramfs) echo 'skip: a journal wants a disk' && exit 0 ;; esac
mkdir m low
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point$options" -- "$@" 2>err
}
all_refuse() { # WHAT
    local verb
    run ",cache=$image:64M" true && fail "$1: a session with a cache"
    grep -q 'low/.bypath-cache' err || fail "$1: it is not named: $(cat err)"
    run '' true && fail "$1: a session that may change the directory"
    run ,ro true || fail "$1: the directory as it is: $(cat err)"
    for verb in status drain replay; do
        timeout 20 "$bypath" cache $verb low >out 2>&1
        [ $? = 1 ] && grep -q 'low/.bypath-cache' out || fail "$1: $verb: $(cat out)"
    done
    rm -f low/.bypath-cache "$image"
}

mkfifo low/.bypath-cache && all_refuse 'a FIFO'
ln -s /etc/passwd low/.bypath-cache && all_refuse 'a symlink'
printf 'image %s\nnumber 1\n' "$image" >low/.bypath-cache && chmod 666 low/.bypath-cache && all_refuse 'one that all may write'
if [ "$(id -u)" = 0 ]; then
    printf 'image %s\nnumber 1\n' "$image" >low/.bypath-cache && chown 12345 low/.bypath-cache && all_refuse "another user's"
fi

# Root in the directory of another user: the directory becomes what root's own calls would have made of it.
if [ "$(id -u)" = 0 ]; then
    cat >work.sh <<'S'
echo new >own/new; echo more >>own/f; echo more >>own/roots; echo x >closed/x; mkdir own/sub secret; echo y >own/sub/y
chown 12346 own/sub/y; chmod 4755 own/new; ln -s f own/sl; mkfifo own/ff; mv own/f own/moved; ln own/moved own/hard
rm closed/f; chmod 700 secret; echo s >secret/s; echo z >roots/z; chmod 600 own/sub/y
S
    for tree in theirs twin; do
        mkdir -p $tree/own $tree/closed && echo f | tee $tree/own/f >$tree/closed/f && chown -R 12345:12345 $tree
        mkdir $tree/roots && echo r >$tree/own/roots && chmod 600 $tree/own/roots && chmod 555 $tree/closed && chmod 444 $tree/own/f
    done
    chmod 755 . && (cd twin && sh ../work.sh)
    timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/theirs:$point,cache=$image:64M" -- sh -c "cd $point && sh $PWD/work.sh" 2>err
    rm -f "$image"
    list() { (cd "$1" && find . -printf '%M %U %G %n %p\n' | sort && find . -type f | sort | xargs cat); }
    [ "$(list theirs)" = "$(list twin)" ] || fail "root in another user's directory: $(diff <(list theirs) <(list twin)) $(cat err)"
fi

# A journal with eight acknowledged files, of which the second group is damaged.
setsid "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:64M,sync=journal" -- \
    bash -c "cd $point; for i in \$(seq 8); do echo \$i >f\$i; sync f\$i; done; touch $PWD/done; sleep 60" 2>err &
leader=$!
for i in $(seq 200); do [ -e done ] && break; sleep 0.05; done
kill -9 -- -"$leader" 2>/dev/null
for pid in $(pgrep -f "cache-spare [0-9]* $image"); do kill -9 "$pid"; done
wait 2>/dev/null
[ -e low/.bypath-cache ] && flock -w 20 low/.bypath-cache true
rm -f "$image"
before=$(python3 - "$journal" <<'P'
import hashlib, sys
with open(sys.argv[1], "r+b") as file:
    data = bytearray(file.read())
    groups = [at for at in range(8192, len(data), 4096) if data[at:at + 8] == b"BPjgroup"]
    data[groups[1] + 80] ^= 4
    file.seek(0)
    file.write(data)
print(hashlib.sha256(data[8192:]).hexdigest())
P
)
timeout 60 "$bypath" cache replay low >out 2>&1
[ $? = 1 ] || fail "a damaged journal: exit code: $(cat out)"
grep -q 'group 2 ' out && grep -q "$journal.damaged" out || fail "a damaged journal: what is said: $(cat out)"
[ "$(tail -c +8193 "$journal.damaged" | sha256sum | cut -d' ' -f1)" = "$before" ] || fail 'a damaged journal: it is not kept as it was'
[ -e low/.bypath-cache ] && fail 'a damaged journal: the directory is not free'
[ "$(cat low/f1 2>&1)" = 1 ] && [ ! -e low/f3 ] || fail "a damaged journal: what was made: $(ls -l low)"
run ",cache=$image:64M" touch "$point/next" && [ -e low/next ] || fail "the session after it: $(cat err)"
exit $failed
