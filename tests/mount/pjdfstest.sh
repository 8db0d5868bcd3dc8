# pjdfstest (the crate): what passes on tmpfs passes through the mount, and on the short way
# but for the tests in pjdfstest.known, some of which need the mount beside it.
suite=${TOOLS:-$here/../../target/tools/bin}/pjdfstest
if [ ! -x "$suite" ]; then
    echo "skip pjdfstest: not installed (make mount-tools): NOT tested"
    exit 0
fi
passed() { # FILE: names of the tests that passed
    awk '$NF == "ok" { print $1 }' "$1" | sort
}
mkdir "$work/tmpfs"
cd "$work" || exit 1
"$suite" -c "$here/pjdfstest.toml" -p "$work/tmpfs" >tmpfs.out 2>&1
passed tmpfs.out >tmpfs.passed
[ "$(wc -l <tmpfs.passed)" -gt 300 ] || fail "only $(wc -l <tmpfs.passed) tests pass on tmpfs"
compare() { # WHAT LIST OUTPUT
    passed "$3" >passed
    missing=$(comm -23 "$2" passed)
    if [ -z "$missing" ]; then ok "$1: $(wc -l <passed) tests"; else fail "$1:" $missing; fi
}
"$bypath" mount "$image" "$mnt" || exit 1
"$suite" -c "$here/pjdfstest.toml" -p "$mnt" >mount.out 2>&1
"$bypath" umount "$mnt"
compare 'through the mount' tmpfs.passed mount.out
for way in '' --no-fuse; do
    sed "s/ *#.*//${way:+; s/^without a mount: //}; /^without/d" "$here/pjdfstest.known" | grep . | sort >known
    comm -23 tmpfs.passed known >short.wanted
    # Those that are known to fail could end the whole run: they are not begun.
    "$bypath" run $way --mount "$image:$mnt" -- "$suite" -c "$here/pjdfstest.toml" -p "$mnt" $(cat short.wanted) >short.out 2>&1
    compare "bypath run $way" short.wanted short.out
done
# A directory of the kernel's, seen by a path that is not shorter than its own (the longest path is the kernel's) nor too long for a socket.
mkdir -m 777 "$work/host"
point=/k$work/host
grep -vx 'rmdir::ebusy' tmpfs.passed >short.wanted
"$bypath" run --no-fuse --mount "host:$work/host:$point" -- "$suite" -c "$here/pjdfstest.toml" -p "$point" $(cat short.wanted) >host.out 2>&1
compare 'a directory of the kernel' short.wanted host.out
