#!/bin/sh
# Sessions on an image whose file may not be written: they read it where it lies, any number at a time; all can be read, by
# every program of a session; every change is refused; the file stays as it is, and nothing is left behind.
#
#   rescue.sh BYPATH
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/common.sh"
BYPATH=$1
begin rescue r

# Root may write anything: then the sessions are another user's, who needs to reach the programs.
as=
if [ "$(id -u)" -eq 0 ]; then
    as='setpriv --reuid 65534 --regid 65534 --clear-groups'
    $as true 2>/dev/null || {
        echo "skip an image that may not be written: no setpriv"
        exit 0
    }
fi
mkdir "$work/bin" "$work/segments" && cp "$bypath" "$(dirname "$bypath")/libbypath_preload.so" "$work/bin" || exit 1
chmod 755 "$work" "$work/bin" && chmod 1777 "$work/segments"
image=$work/i
session() { # OPTIONS COMMAND…
    options=$1
    shift
    BYPATH_SEGMENT_DIR=$work/segments $as "$work/bin/bypath" run --no-fuse --mount "$image:/bp$options" -- "$@"
}

mkdir -p "$work/tree/below"
seq 20000 >"$work/tree/numbers"
echo contents >"$work/tree/below/file"
ln -s below/file "$work/tree/link"
chmod -R go+rX "$work/tree"
"$bypath" mkfs "$image" --size 64M >/dev/null && "$bypath" import -q "$work/tree" "$image:/tree" || exit 1
chmod 444 "$image"
sum=$(sha256sum <"$image")

session ,ro sh -c 'cd /bp/tree && ls -R . && cat link && sort -rn numbers | head -3 && exec 3<below/file && read -r first <&3 && echo "$first" && find . -type f | xargs cat | wc -c' >"$work/got" 2>&1
(cd "$work/tree" && ls -R . && cat link && sort -rn numbers | head -3 && echo contents && find . -type f | xargs cat | wc -c) >"$work/want"
diff "$work/want" "$work/got"
verdict "rescue: a session reads what is there" $?

if command -v python3 >/dev/null 2>&1; then
    map='import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
print(sum(mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)[:]))'
    [ "$(session ,ro python3 -c "$map" /bp/tree/numbers 2>&1)" = "$(python3 -c "$map" "$work/tree/numbers")" ]
    verdict "rescue: a shared mapping that is only read" $?
else
    echo "skip a shared mapping of an image that may not be written: no python3"
fi

session ,ro sh -c 'echo x >/bp/new; echo x >>/bp/tree/numbers; rm /bp/tree/link; mkdir /bp/d; mv /bp/tree /bp/t' >"$work/said" 2>&1
[ "$(grep -c 'Read-only file system' "$work/said")" -eq 5 ]
verdict "rescue: every change is refused" $? || cat "$work/said"

# Two sessions read one file where it lies, and have no copy of what is in the files. Meanwhile nobody changes it.
mkfifo "$work/first" "$work/second" "$work/end1" "$work/end2"
chmod 666 "$work/first" "$work/second" "$work/end1" "$work/end2"
for number in first:end1 second:end2; do
    session ,ro sh -c "cd /bp/tree && echo \$(cat numbers below/file | sha256sum) \$\$ >'$work/${number%:*}'; read -r _ <'$work/${number#*:}'" &
done
read -r first _ pid <"$work/first" && read -r second _ <"$work/second"
want=$(cat "$work/tree/numbers" "$work/tree/below/file" | sha256sum | cut -d' ' -f1)
[ "$first" = "$want" ] && [ "$second" = "$want" ] && [ "$(ls "$work/segments" | grep -c rescue)" -eq 2 ]
verdict "rescue: two sessions at a time" $?
grep -q "r--s .* $image\$" "/proc/$pid/maps"
verdict "rescue: the file itself is what they read" $?
"$bypath" ls "$image:/tree" >/dev/null && "$bypath" check "$image" >/dev/null
verdict "rescue: commands read it too" $?
flock -n -x "$image" true
[ $? -ne 0 ]
verdict "rescue: who wants to change it waits" $?
echo >"$work/end1"
echo >"$work/end2"
wait
flock -n -x "$image" true
verdict "rescue: and no longer than they live" $?

[ "$(BYPATH_SEGMENT_DIR=$work/segments $as "$work/bin/bypath" cat "$image:/tree/below/file")" = contents ]
verdict "rescue: a command without a session" $?

session '' true 2>"$work/said"
[ $? -ne 0 ] && grep -q 'not writable; with the option ro' "$work/said"
verdict "rescue: without ro it is refused, and says what to do" $?

[ "$sum" = "$(sha256sum <"$image")" ]
verdict "rescue: not a byte of the file is another" $?
[ -z "$(ls "$work/segments")" ]
verdict "rescue: nothing is left behind" $?

# While its owner uses it a copy would be a picture of no instant.
if [ -n "$as" ]; then
    mkfifo "$work/go" "$work/ready"
    "$bypath" run --no-fuse --mount "$image:/bp" -- sh -c "echo >'$work/ready'; read -r _ <'$work/go'" &
    read -r _ <"$work/ready"
    session ,ro true 2>"$work/said"
    [ $? -ne 0 ] && grep -q 'other processes use it' "$work/said"
    verdict "rescue: an image in use is refused" $?
    echo >"$work/go"
    wait
fi
exit $failed
