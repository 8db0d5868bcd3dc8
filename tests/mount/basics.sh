# One mount: up, used, away; both ways at once; what goes wrong.
is() { # WHAT WORDS COMMAND…: fails with one line that holds the words
    local what=$1 words=$2 out code
    shift 2
    out=$("$@" 2>&1 </dev/null)
    code=$?
    if [ $code -ne 0 ] && [ "$(echo "$out" | wc -l)" -eq 1 ] && [[ $out == *"$words"* ]]; then ok "$what"; else fail "$what: $code: $out"; fi
}
# Who was there before the mount, and has asked: in a directory, which tells of what is in it.
short sh -c "mkdir $mnt/before; touch $mnt/before/f"
if command -v python3 >/dev/null; then
    mkfifo "$work/mounted"
    short python3 -S -c '
import os, sys
device = lambda: os.stat(sys.argv[1]).st_dev
print(device() == device(), open(sys.argv[2]).read(), device(), device())
' "$mnt/before/f" "$work/mounted" >"$work/devices" &
    before=$!
else
    echo "skip who was there before: no python3 here: NOT tested"
fi
"$bypath" mount "$image" "$mnt" && ok 'mounts in the background' || fail 'mount'
if [ -p "$work/mounted" ]; then
    echo -n then >"$work/mounted"
    wait $before
    device=$(stat -c %d "$mnt/before/f")
    same 'who was there before sees its device' "$(cat "$work/devices")" "True then $device $device"
fi
echo hello >"$mnt/f"
same 'what the mount writes, the short way reads' "$(short cat "$mnt/f")" hello
short sh -c "echo more >>$mnt/f; mkdir $mnt/d; mkfifo $mnt/p; ln -s f $mnt/l"
same 'what the short way writes, the mount reads' "$(cat "$mnt/l")" $'hello\nmore'
same 'both show the same node' "$(short stat -c '%d %i %s %a %h %F' "$mnt/f" "$mnt/d" "$mnt/l" "$mnt/p" "$mnt")" \
    "$(stat -c '%d %i %s %a %h %F' "$mnt/f" "$mnt/d" "$mnt/l" "$mnt/p" "$mnt")"
short sh -c "rm $mnt/f; rmdir $mnt/d"
[ ! -e "$mnt/f" ] && [ ! -e "$mnt/d" ] && ok 'removed is removed' || fail 'a removed name is still there'
# Open here, removed there.
exec 7<>"$mnt/open"
echo kept >&7
short rm "$mnt/open"
same 'unlinked by the short way, open here' "$(cat "/proc/self/fd/7"; stat -L -c %h /proc/self/fd/7)" $'kept\n0'
exec 7>&-

# Locks: the one who has it is on the other way.
touch "$mnt/lock"
short flock -n "$mnt/lock" sh -c "touch $work/held; while [ ! -e $work/enough ]; do sleep 0.01; done; echo first >>$work/order" &
wait_until [ -e "$work/held" ] || fail 'the short way gets no lock'
flock -n "$mnt/lock" true && fail 'flock held by the short way' || ok 'flock held by the short way'
flock "$mnt/lock" sh -c "echo second >>$work/order" &
sleep 0.2
touch "$work/enough"
wait
same 'flock waited for' "$(cat "$work/order")" $'first\nsecond'
flock "$mnt/lock" sleep 100 &
holder=$!
wait_until pgrep -P $holder -x sleep >/dev/null || fail 'the mount gives no lock'
timeout -s INT 0.3 flock "$mnt/lock" true
same 'a wait for a lock can be interrupted' $? 124
short flock -n "$mnt/lock" true && fail 'flock held by the mount' || ok 'flock held by the mount'
pkill -P $holder; wait $holder 2>/dev/null

# The magic name.
number=$(stat -c %i "$mnt/lock")
echo by number >"$mnt/lock"
same 'a file by its number' "$(cat "$mnt/.bypath/ino/$number".{0,1,2,3} 2>/dev/null)" 'by number'
same 'not listed' "$(ls -A "$mnt" | grep -c bypath)" 0
same 'nobody else may search it' "$(setpriv --reuid 65534 --clear-groups stat "$mnt/.bypath/ino" 2>&1 | grep -c 'Permission denied')" 1
same 'no such node' "$(cat "$mnt/.bypath/ino/$number.999999" 2>&1 | grep -c 'o such file\|Stale')" 1

# Three users: what the modes allow, and no more.
chmod 777 "$mnt"
for user in 65534 1 2; do
    setpriv --reuid $user --regid $user --clear-groups sh -c "umask 077; echo $user >$mnt/of-$user"
done
same 'new files are the caller'"'"'s' "$(stat -c '%u:%g:%a' "$mnt"/of-*)" $'1:1:600\n2:2:600\n65534:65534:600'
same 'and nobody else'"'"'s' "$(setpriv --reuid 1 --regid 1 --clear-groups sh -c "cat $mnt/of-1 $mnt/of-2 $mnt/of-65534 2>/dev/null")" 1
chmod 640 "$mnt/of-2"
same 'supplementary groups count' "$(setpriv --reuid 1 --regid 1 --groups 2 cat "$mnt/of-2")" 2

is 'no second mount of the image' 'already mounted elsewhere' "$bypath" mount "$image" "$work/other"
mkdir "$work/m2"
is 'nor at another directory' 'already mounted elsewhere' "$bypath" mount "$image" "$work/m2"
"$bypath" mkfs "$work/second" >/dev/null
is 'a busy mount point' 'busy' "$bypath" mount "$work/second" "$mnt"
is 'a missing directory' 'no such directory' "$bypath" mount "$work/second" "$work/none"
is 'not a directory' 'not a directory' "$bypath" mount "$work/second" "$work/second"
echo text >"$work/text"
is 'not an image' 'not a Bypath image' "$bypath" mount "$work/text" "$work/m2"
exec 7<"$mnt/lock"
is 'a mount in use' 'in use' "$bypath" umount "$mnt"
exec 7<&-
"$bypath" umount "$mnt" && ok 'unmounts' || fail 'unmounts'
is 'nothing mounted' 'no image is mounted' "$bypath" umount "$mnt"
same 'what was written is there' "$("$bypath" cat "$image:/of-1")" 1

# In the foreground, ended by a signal, with a log.
served --log "$work/log" || fail 'no mount in the foreground'
echo last >"$mnt/last"
kill -TERM $server
wait $server
same 'SIGTERM ends a server in order' $? 0
same 'and its mount' "$(grep -c "$mnt" /proc/mounts)" 0
same 'and loses nothing' "$("$bypath" cat "$image:/last")" last
same 'the log tells of it' "$(grep -c 'is mounted at\|signal 15\|ended' "$work/log")" 3

# A server that is killed leaves a mount that says so; the next one cleans up.
served || fail 'no mount in the foreground'
kill -KILL $server
wait $server 2>/dev/null
ls "$mnt" >/dev/null 2>&1 && fail 'a dead mount' || ok 'a dead mount says so'
"$bypath" mount "$image" "$mnt" && same 'and the next one takes its place' "$(cat "$mnt/last")" last
"$bypath" umount "$mnt"

# Beside a session.
session() { "$bypath" run --mount "$image:$mnt" -- "$@"; }
same 'a session has a mount' "$(session env -u LD_PRELOAD grep -c "$mnt fuse.bypath" /proc/mounts)" 1
same 'programs without the library see the files' "$(session sh -c "echo new >$mnt/new; env -i /bin/cat $mnt/new")" new
same 'not with --no-fuse' "$(short grep -c "$mnt fuse.bypath" /proc/mounts)" 0
same 'its exit code is the program'"'"'s' "$(session sh -c 'exit 7'; echo $?)" 7
same 'it leaves no mount' "$(grep -c "$mnt" /proc/mounts)" 0
"$bypath" run --mount "$image:$mnt" -- sleep 100 &
first=$!
wait_until grep -q "$mnt" /proc/mounts
same 'a second session shares it' "$(session grep -c "$mnt fuse.bypath" /proc/mounts)" 1
same 'and leaves it to the first' "$(grep -c "$mnt" /proc/mounts)" 1
kill -KILL $first $(pgrep -P $first -x sleep)
wait $first 2>/dev/null
is_gone() { ! grep -q "$mnt" /proc/mounts; }
wait_until is_gone
same 'a session that is killed leaves no mount' "$(grep -c "$mnt" /proc/mounts)" 0
if [ "$(stat -c %u "$image")" = 0 ]; then
    same 'what the kernel mounts in it is busy' "$(session unshare -m sh -c "mkdir -p $mnt/over/p $mnt/other && mount -t tmpfs none $mnt/over/p || exit
        for what in 'rmdir p' 'mv p q' 'mv -T ../other p' 'rmdir q' 'rmdir ../other'; do (cd $mnt/over && \$what) 2>&1 | grep -o '[A-Z][a-z ]*$'; done
        umount $mnt/over/p; rmdir $mnt/over/p && echo gone")" $'Device or resource busy\nDevice or resource busy\nDevice or resource busy\nNo such file or directory\ngone'
fi
mkdir "$work/m3"; touch "$work/m3/mine"
"$bypath" run --mount "$image:$work/m3" -- touch "$work/begun" 2>/dev/null && fail 'a session at a directory with something in it'
same 'a directory with something in it is not hidden' "$(ls "$work/m3" "$work/begun" 2>/dev/null)" "$work/m3:"$'\n'mine
