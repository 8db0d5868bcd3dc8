# Programs inside an image, started on the short way beside the mount: the kernel executes the file itself.
both() { "$bypath" run --mount "$image:$mnt" -- sh -c "cd $mnt; $1" 2>&1; }
cp_bin() { echo "cp $(type -P "$1") $mnt/$2"; }
same 'its own path' "$(both "$(cp_bin readlink rl); mkdir d; ln -s ../rl d/link; ./rl /proc/self/exe; $mnt/rl /proc/self/exe; cd d; ../rl /proc/self/exe; ./link /proc/self/exe; PATH=$mnt rl /proc/self/exe")" \
    "$(for i in 1 2 3 4 5; do echo "$mnt/rl"; done)"
same 'by a script' "$(both "printf '#!$mnt/rl -n\n' >s; chmod +x s; ./s; echo \$?")" 1
same 'busy while it runs' "$(both "$(cp_bin sleep sl); ./sl 60 & until [ \"\$(readlink /proc/\$!/exe)\" = $mnt/sl ]; do sleep 0.01; done; (echo x >sl) 2>/dev/null; echo \$?; (echo x >>sl) 2>/dev/null; echo \$?; truncate -s 1 sl 2>/dev/null; echo \$?; (echo x >rl.new) && echo other
    kill \$!; wait \$! 2>/dev/null; until (echo x >sl) 2>/dev/null; do sleep 0.01; done; cat sl")" $'2\n2\n1\nother\nx'
# Without the short way. Whoever truncates need not open for writing: the kernel asks the server before it looks who is executing.
if command -v python3 >/dev/null; then
    "$bypath" mount "$image" "$mnt"
    cp "$(type -P sleep)" "$mnt/sleep"
    cp "$(type -P cat)" "$mnt/cat"
    "$mnt/sleep" 60 &
    python3 - "$mnt/sleep" >"$work/got" 2>&1 <<'E'
import errno, os, sys
for flags in os.O_RDONLY, os.O_WRONLY, os.O_RDWR:
    try:
        os.open(sys.argv[1], flags | os.O_TRUNC)
    except OSError as e:
        print(errno.errorcode[e.errno])
E
    cmp "$mnt/sleep" "$(type -P sleep)" >>"$work/got" 2>&1
    kill $!
    same 'not truncated while it runs, by the kernel' "$(cat "$work/got")" $'ETXTBSY\nETXTBSY\nETXTBSY'
    wait $! 2>/dev/null
    "$bypath" umount "$mnt"
    # The server is told of a program's end after its parent: here, once somebody has asked for the file.
    # The program has answered before the server stops: it needs no more of its pages, and can die.
    served || fail 'no mount'
    cat >"$work/ended.py" <<'E'
import os, signal, subprocess, sys, threading, time
program, server = sys.argv[1], int(sys.argv[2])
child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
os.write(child.stdin.fileno(), b'x')
os.read(child.stdout.fileno(), 1)
if os.readlink(f'/proc/{child.pid}/exe') != program:
    print('not run from the mount')
def stopped(task):
    return open(f'/proc/{server}/task/{task}/stat').read().rpartition(')')[2].split()[0] == 'T'
os.kill(server, signal.SIGSTOP)
while not all(map(stopped, os.listdir(f'/proc/{server}/task'))):
    time.sleep(0.001)
threading.Timer(1, os.kill, (server, signal.SIGCONT)).start()
child.kill()
child.wait()
try:
    os.close(os.open(program, os.O_WRONLY))
    print('opened')
except OSError as e:
    print(e)
E
    same 'not busy any more, once it has ended' "$(cd / && "$bypath" run --mount "$image:$mnt" -- python3 "$work/ended.py" "$mnt/cat" $server 2>&1)" opened
    "$bypath" umount "$mnt"
    wait $server
fi
same 'replaced, and the new one runs' "$(both "for i in 1 2 3 4 5 6 7 8; do cat $(type -P true) >p; chmod +x p; ./p; echo -n \$?; cat $(type -P false) >p; ./p; echo -n \$?; cp $(type -P echo) q; mv q p; ./p -n e; done")" 01e01e01e01e01e01e01e01e
if [ "$(stat -c %u "$image")" = 0 ]; then
    same 'set-user-id' "$(both "$(cp_bin id id); chown daemon id; chmod 4755 id; ./id -un; chmod 755 id; ./id -un")" $'daemon\nroot'
fi
if command -v "${CC:-cc}" >/dev/null; then
    same 'libraries beside it' "$(both "mkdir lib; echo 'int answer(void) { return 42; }' >a.c; echo 'int answer(void); int main(void) { return answer(); }' >m.c
        ${CC:-cc} -shared -fPIC -o lib/liba.so a.c && ${CC:-cc} -o m m.c -Llib -la -Wl,-rpath,'\$ORIGIN/lib' && ./m; echo \$?; cd /; $mnt/m; echo \$?")" $'42\n42'
    if command -v python3 >/dev/null; then
        same 'libraries loaded later' "$(both "for l in lib/liba.so $mnt/lib/liba.so; do python3 -c 'import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())' \$l; done")" $'42\n42'
    fi
fi
same 'arguments, environment, descriptors, directory' "$(both "$(cp_bin env env); $(cp_bin pwd pwd); $(cp_bin cat cat); X=1 ./env -u Y | grep -c '^X=1\$'; cd d; ../pwd; echo in >f; exec 7<f; ../cat <&7; ../cat /proc/self/comm")" $'1\n'"$mnt"$'/d\nin\ncat'
