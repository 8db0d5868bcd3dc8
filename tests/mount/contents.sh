# The kernel keeps what is only read: asked for once, and never older than a change that is done.
command -v python3 >/dev/null || { echo "skip contents: no python3 here: NOT tested"; exit 0; }
chmod 666 "$image"
"$bypath" mount "$image" "$mnt" || exit 1
asked() { "$bypath" info "$image" --json | sed -n 's/.*"mount": *\([0-9]*\).*/\1/p' | head -1; }
head -c 30000 /dev/urandom >"$mnt/file"
cp /bin/cat "$mnt/cat"
# Files that somebody has just changed are not kept.
sleep 0.2
reads='import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(int(sys.argv[2])):
    assert len(os.pread(fd, 4096, 8192)) == 4096'
python3 -S -c "$reads" "$mnt/file" 1
before=$(asked)
[ "$before" -gt 0 ] || fail 'nothing is counted'
python3 -S -c "$reads" "$mnt/file" 1000
[ $(($(asked) - before)) -lt 20 ] && ok 'a thousand reads of what is kept ask for nothing' || fail "$(($(asked) - before)) requests"
rounds=${CONTENTS:-800}
for seed in 1 2; do
    head -c 30000 /dev/urandom >"$mnt/file$seed"
    sleep 0.2
    same "reads beside changes on both ways, seed $seed" "$(timeout 300 python3 -S "$here/contents.py" "$mnt/file$seed" "$rounds" $seed \
        -- "$bypath" run --no-fuse --mount "$image:$mnt" -- 2>&1)" "$rounds rounds, 0 wrong, workers (0, 0)"
done
# Opened and written by many while it is kept: nobody waits for himself.
cat >"$work/many.py" <<'P'
import os, sys, time
path, who, end = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
kept, rounds = os.open(path, os.O_RDONLY), 0
while time.monotonic() < end:
    rounds += 1
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"%08d" % rounds, 40000 + 8 * who)
    os.close(fd)
    if os.pread(kept, 8, 40000 + 8 * who) != b"%08d" % rounds:
        sys.exit(f"round {rounds}: not what was written")
print("fine")
P
sleep 0.2
for who in 0 1 2 3; do timeout 60 python3 -S "$work/many.py" "$mnt/file" $who 2 >"$work/many$who" 2>&1 & done
for who in 4 5; do timeout 60 "$bypath" run --no-fuse --mount "$image:$mnt" -- python3 -S "$work/many.py" "$mnt/file" $who 2 >"$work/many$who" 2>&1 & done
wait
same 'many who read and write it' "$(cat "$work"/many?)" "$(printf 'fine\n%.0s' 0 1 2 3 4 5)"
"$bypath" umount "$mnt"
