# The kernel keeps attributes for long: whatever changes them on either way, both show the same at once.
chmod 666 "$image"
"$bypath" mount "$image" "$mnt" || exit 1
show() { (cd "$mnt" && stat -c '%n %i %s %b %f %h %u %g %Y %y %Z %z' f g d . 2>&1); }
shown() { short sh -c "cd $mnt && stat -c '%n %i %s %b %f %h %u %g %Y %y %Z %z' f g d . 2>&1"; }
fresh() { # as the tests below begin
    rm -rf "$mnt"/f* "$mnt"/g* "$mnt"/d*
    head -c 100000 /dev/zero >"$mnt/f"
    ln "$mnt/f" "$mnt/f2"
    echo other >"$mnt/g"
    mkdir "$mnt/d"
    chown 1:1 "$mnt/f"
    chmod 6775 "$mnt/f"
}
export PYTHONDONTWRITEBYTECODE=1
changes() {
    cat <<'CHANGES'
append            | echo more >>f
overwrite         | printf x | dd of=f conv=notrunc status=none
beyond the end    | printf x | dd of=f bs=1 seek=200000 conv=notrunc status=none
O_TRUNC           | : >f
truncate          | truncate -s 7 f
truncate up       | truncate -s 300000 f
fallocate         | fallocate -l 400000 f
a hole            | fallocate -p -o 0 -l 65536 f
many appends      | for i in 1 2 3 4 5 6 7 8 9; do head -c 5000 /dev/zero; done >>f
chmod             | chmod 600 f
chown             | chown 3:4 f
utimes            | touch -d '2001-02-03 04:05:06.789' f
an attribute      | python3 -c 'import os; os.setxattr("f", "user.a", b"b")'
link              | ln f f3
unlink            | rm f2
rename            | mv f2 f3
rename over       | mv -f g f
exchange          | python3 -c 'import ctypes; assert ctypes.CDLL(None).renameat2(-100, b"f", -100, b"g", 2) == 0'
copy              | cat f >g
copy_file_range   | python3 -c 'import os; a, b = os.open("f", 0), os.open("g", 2); os.copy_file_range(a, b, 5000)'
pwritev           | python3 -c 'import os; os.pwritev(os.open("f", 1), [b"a", b"b"], 100000)'
by another user   | setpriv --reuid 1 --regid 1 --clear-groups sh -c 'printf x | dd of=f conv=notrunc status=none'
shorter by him    | setpriv --reuid 1 --regid 1 --clear-groups truncate -s 5 f
emptied by him    | setpriv --reuid 1 --regid 1 --clear-groups sh -c ': >f'
given away        | setpriv --reuid 1 --regid 1 --groups 2 chgrp 2 f
a directory       | mkdir d/e
made in it        | touch d/n
unmade            | rmdir d
CHANGES
}
for way in short mount; do
    while IFS='|' read -r what command; do
        fresh
        show >/dev/null
        show >/dev/null
        if [ $way = short ]; then short sh -c "cd $mnt && $command"; else (cd "$mnt" && sh -c "$command"); fi
        same "$way way: $what" "$(show)" "$(shown)"
    done < <(changes)
done
# A file that was made a moment ago: what the kernel keeps of it from its making is forgotten too.
if command -v python3 >/dev/null; then
    cat >"$work/writes.py" <<'E'
import sys
for line in sys.stdin:
    with open(line.strip(), 'a') as out:
        out.write('changed')
    print('done', flush=True)
E
    cat >"$work/makes.py" <<'E'
import os, subprocess, sys
directory, writer = sys.argv[1], subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
seen = 0
for number in range(200):
    path = f'{directory}/made{number}'
    made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    print(path, file=writer.stdin, flush=True)
    assert writer.stdout.readline() == 'done\n'
    seen += os.fstat(made).st_size == 7
    os.close(made)
writer.stdin.close()
print(seen, writer.wait())
E
    same 'short way: a file just made through the mount' \
        "$(python3 "$work/makes.py" "$mnt" "$bypath" run --no-fuse --mount "$image:$mnt" -- python3 "$work/writes.py" 2>&1)" '200 0'
fi
"$bypath" umount "$mnt"
