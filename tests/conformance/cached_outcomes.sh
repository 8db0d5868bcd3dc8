#!/bin/bash
# own
# seconds: 60
# A round that fails in part: each file and each name behind a cache has its own outcome. Method: real programs beside
# directories that come and go, a file that can't be written, rights that change, file systems that are full; below, what
# programs see, what is said, and the exit code are compared.
. "$(dirname "$0")/own.sh"
[ "$(stat -f -c %T .)" = tmpfs ] || { echo 'skip: not on tmpfs' && exit 0; }
low=$PWD/low at=$PWD/at image=$PWD/c.img
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:64M$options" -- "$@"
}

# Directories come and go while another program syncs a file of its own.
mkdir low
cat >go.py <<'P'
import os, shutil, sys, time
os.chdir(sys.argv[1]); end = time.time() + 5
if os.fork() == 0:
    i = 0
    while time.time() < end:
        i += 1; t = f't{i}'; os.makedirs(t + '/a/b')
        for k in range(30): open(f'{t}/a/b/f{k}', 'w').write('x' * 2000)
        if i > 3: shutil.rmtree(f't{i - 3}')
    os._exit(0)
f = os.open('mine', os.O_CREAT | os.O_WRONLY)
while time.time() < end:
    os.pwrite(f, b'data', 0); os.fsync(f)
os.wait()
P
run '' python3 -B go.py "$at" >got 2>err || fail "a sync beside directories that come and go: $(cat got err)"
same 'directories that come and go' "$(cat err)" ''
same 'nothing is left on its way' "$(ls -A low | grep bypath)" ''

# One file can't be written, since others have removed it and a part of it was only there: the rest is there, and found.
rm -rf low c.img && mkdir -p low/a/b/c low/e && head -c 300000 /dev/zero >low/gone && echo x >low/a/b/c/f
begun=$SECONDS
run ',sync=image' bash -c 'cd "$1"; echo x >>gone; rm "$2/gone"; sleep 2; mv a/b e/b2; mv e e3; sleep 2
ls e3/b2; cat e3/b2/c/f; test -e e3/b2/c/f && echo there; ls e3/b2/c' bash "$at" "$low" >got 2>err
same 'names while one file fails' "$(cat got)" $'c\nx\nthere\nf'
[ $((SECONDS - begun)) -lt 30 ] || fail "the end of a session that can't finish took $((SECONDS - begun)) s"
grep -q '^  gone: .*; .*skip it' err || fail "what failed is not said: $(cat err)"
same 'moved below' "$(cat low/e3/b2/c/f)" x
"$bypath" cache status "$image" | grep -q '    gone: ' || fail "status: $("$bypath" cache status "$image")"
timeout 10 "$bypath" cache drain "$image" >got 2>err
same 'drain' $? 1
grep -q '^  gone: ' err || fail "drain says nothing of it: $(cat err)"
"$bypath" cache discard "$image" --yes >/dev/null || fail discard

# A file that was made here, and removed below, is made again.
rm -rf low c.img && mkdir low
run '' sh -c 'cd "$1"; echo ours >f; sync f; rm "$2/f"; echo ours2 >f; sync f && echo synced' sh "$at" "$low" >got 2>err
same 'made again' "$(cat got low/f)" $'synced\nours2'

# Rights that were changed here, and not below yet, do not keep anybody from bytes that are there.
[ "$(id -u)" = 0 ] && {
    rm -rf low c.img && mkdir low && chmod 755 low . && cat >rights.py <<'P'
import os, sys, time
top = sys.argv[1]; os.chmod(top, 0o755); b = top + '/d'; c = b + '/f'
def nobody(act):
    child = os.fork()
    if child == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        try: act(); os._exit(0)
        except OSError as error: os._exit(error.errno)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os.mkdir(b); os.chown(b, 65534, 65534)
nobody(lambda: open(c, 'w')); nobody(lambda: os.truncate(c, 123))
os.chmod(b, 0o644); time.sleep(2); os.chmod(b, 0o755)
print(nobody(lambda: os.truncate(c, 1234)), nobody(lambda: open(c).read()), nobody(lambda: os.write(os.open(c, os.O_WRONLY | os.O_APPEND), b'x')), os.stat(c).st_size)
P
    run '' python3 -B rights.py "$at" >got 2>err
    same 'rights' "$(cat got)" '0 0 0 1235'
}
exit $failed
