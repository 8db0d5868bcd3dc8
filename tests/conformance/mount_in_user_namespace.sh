# An image made, filled, mounted and run by root of a user namespace: it holds the initial namespace's numbers, and both ways
# show and take those of the namespace.
# own
[ -c /dev/fuse ] || { echo "skip: no /dev/fuse here" && exit 0; }
# Everybody's here, as most systems have it.
mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse || exit 1
chmod 1777 /dev/shm && mkdir programs && cp "${bypath%/*}"/libbypath*.so "$bypath" programs && chmod 755 . programs programs/* || exit 1
mkdir theirs && chown 1000:1000 theirs && cd theirs || exit 1
cat >inside <<'S'
bypath=$1
fail() { echo "$*" && exit 1; }
is() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
"$bypath" mkfs i --size 64M >/dev/null && mkdir m && "$bypath" mount i m || fail "no mount"
short() { "$bypath" run --no-fuse --mount "$PWD/i:$PWD/m" -- "$@"; }
both() { is "$1, by the mount" "$(stat -c '%u %g' "m/$1")" "$2" && is "$1, by the short way" "$(short stat -c '%u %g' "m/$1")" "$2"; }
touch m/by-mount && short touch m/by-short && mkdir m/dir && short mkdir m/short-dir || fail "cannot make files"
for name in . by-mount by-short dir short-dir; do both $name '0 0'; done
chown 0:0 m/by-mount && short chown 0:0 m/by-short || fail "cannot give what is one's own"
! chown 5 m/by-mount 2>/dev/null && ! short chown 5 m/by-short 2>/dev/null || fail "gives to nobody"
chmod 0 m/by-mount && short chmod 0 m/by-short && short cat m/by-mount && cat m/by-short || fail "no right over what is one's own"
"$bypath" umount m || fail "cannot unmount"
touch from-here && "$bypath" import from-here i:/imported && "$bypath" export i:/imported exported || fail "import, export"
is exported "$(stat -c '%u %g' exported)" '0 0'
for name in by-mount by-short dir imported; do
    "$bypath" stat "i:/$name" | grep -q 'uid 1000  gid 1000' || fail "$name in the image: $("$bypath" stat "i:/$name")"
done
"$bypath" check i >check || fail "$(cat check)"
S
setpriv --reuid 1000 --regid 1000 --clear-groups unshare --user -r --mount bash inside "$PWD/../programs/bypath"
