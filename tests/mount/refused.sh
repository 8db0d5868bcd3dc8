# What cannot be had is refused in one line that says why; and nothing is left of it.
is() { # WHAT WORDS COMMAND…: fails with one line that holds the words
    local what=$1 words=$2 out code
    shift 2
    out=$("$@" 2>&1 </dev/null)
    code=$?
    if [ $code -ne 0 ] && [ "$(echo "$out" | wc -l)" -eq 1 ] && [[ $out == *"$words"* ]]; then ok "$what"; else fail "$what: $code: $out"; fi
}
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# Without the device.
touch "$work/device"
is 'no /dev/fuse' 'no /dev/fuse here' unshare -m --propagation private sh -c 'mount --bind "$1" /dev/fuse && exec "$2" mount "$3" "$4"' \
    sh "$work/device" "$bypath" "$image" "$mnt"
same 'a session does without' "$(unshare -m --propagation private sh -c 'mount --bind "$1" /dev/fuse && exec "$2" run --mount "$3:$4" -- ls -a "$4"' \
    sh "$work/device" "$bypath" "$image" "$mnt")" $'.\n..'

# By somebody else.
is 'an image that he may not write' 'write permission' nobody "$bypath" mount "$image" "$mnt"
"$bypath" mkfs "$work/his" --size 64M >/dev/null
mkdir "$work/m4"
chown 65534:65534 "$work/his" "$work/m4"
is 'not root, and no fusermount3' 'not permitted' nobody env PATH=/nonexistent "$bypath" mount "$work/his" "$work/m4"
"$bypath" mount "$image" "$mnt" || exit 1
nobody "$bypath" umount "$mnt" >"$work/said" 2>&1 && fail "he takes root's mount away" || ok "he cannot take root's mount away"
same 'and is told so in a line' "$(wc -l <"$work/said")" 1

# In a session beside the mount he goes through the kernel, and nothing is said about it.
echo for all >"$mnt/read"
same 'another user in a session' "$(cd / && "$bypath" run --mount "$image:$mnt" -- setpriv --reuid 65534 --regid 65534 --clear-groups \
    sh -c 'cat "$1"/read; echo x >"$1"/new' sh "$mnt" 2>&1 | sed 's/.*: //')" $'for all\nPermission denied'

# In use by another version, whose segment is made otherwise: the last byte of its first word is the version.
mkdir "$work/segments" "$work/m5"
"$bypath" mkfs "$work/other" --size 64M >/dev/null
export BYPATH_SEGMENT_DIR=$work/segments
"$bypath" mount "$work/other" "$work/m5" || exit 1
echo before >"$work/m5/f"
segment=$(echo "$work"/segments/bypath-*)
version() { printf "\\$1" | dd of="$segment" bs=1 seek=7 conv=notrunc status=none; }
ours=$(od -An -to1 -j7 -N1 "$segment" | tr -d ' ')
version 377
is 'mounted by another version' 'other processes use it' "$bypath" mount "$work/other" "$work/m4"
is 'used by another version' 'other processes use it' "$bypath" run --no-fuse --mount "$work/other:$work/m5" -- true
same 'which goes on' "$(cat "$work/m5/f")" before
version "$ours"
"$bypath" umount "$work/m5"
unset BYPATH_SEGMENT_DIR

# What is gone.
mkdir "$mnt/d"
same 'a working directory that is gone' "$(cd "$mnt/d" && short rmdir "$mnt/d" && stat . 2>&1 | grep -c 'Stale')" 1
echo text >"$mnt/f"
number=$(stat -c %i "$mnt/f")
short rm "$mnt/f"
same 'a file that is gone, by its number' "$(cat "$mnt/.bypath/ino/$number".{0,1,2,3} 2>&1 | grep -c 'o such file\|Stale')" 4
"$bypath" umount "$mnt"
same 'nothing is left mounted' "$(grep -c "$work/" /proc/mounts)" 0

# What lies in a directory is neither hidden nor taken for the image's.
mkdir -p "$work/full/of"
is 'a session at a directory with something in it' 'not empty' "$bypath" run --mount "$image:$work/full" -- true
is 'without a kernel mount too' 'not empty' "$bypath" run --no-fuse --mount "$image:$work/full" -- true
