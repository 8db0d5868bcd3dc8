#!/bin/bash
# own
# seconds: 120
# needs: bindfs
# Behind a cache, a daemon that keeps locks is asked for them too: programs of two sessions, each with a cache image and a
# daemon of its own, exclude one another by flock, record and OFD locks, as those of one session do; a lock that was given up,
# closed, or whose holder was killed is free. Who gets a lock sees what was written under it before: counters that three
# sessions raise lose nothing. A part of what one program has locked is given up, and no more. When the daemon ends and is
# started again, what was locked by it is lost: the file can't be written, nor locked, until that has been given up, with a
# cache and without.
# Method: bindfs over one directory, which passes locks on, and Python's fcntl.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m
mkdir -p m low && touch low/f
cp "$tests/lock.py" .
daemon="fuse:bindfs -f --multithreaded --enable-lock-forwarding $PWD/low @:$point"
run() { local image=$1; shift; timeout 90 "$bypath" run --no-fuse --mount "$daemon,cache=$PWD/$image.img:64M" -- "$@"; }
py() { local image=$1; shift; run "$image" python3 lock.py "$point/f" "$@"; }
for kind in flock record ofd; do
    rm -f given-up
    coproc holder { py one $kind hold 2>&1; }
    read -r got <&"${holder[0]}"
    [ "$got" = had ] || fail "$kind: $got"
    got=$(py two $kind try) && [ "$got" = EAGAIN ] || fail "$kind, another session: $got"
    [ $kind != flock ] || ! flock -n low/f true || fail "flock, in the directory below"
    got=$(py two $kind interrupted) && [ "$got" = interrupted ] || fail "$kind, a signal: $got"
    py two $kind wait >waited 2>&1 &
    waiter=$!
    echo >&"${holder[1]}"
    wait $waiter
    [ "$(cat waited)" = had ] || fail "$kind, waiting: $(cat waited)"
    got=$(py two $kind try) && [ "$got" = had ] || fail "$kind, given up: $got"
    echo >&"${holder[1]}"
    wait "$holder_PID"

    # Within a session; and killed there.
    touch given-up
    got=$(run one bash -c "coproc holder { exec python3 lock.py $point/f $kind hold; }; read -r got <&\${holder[0]}
        python3 lock.py $point/f $kind try; kill -9 \$holder_PID; python3 lock.py $point/f $kind wait" 2>err | tr '\n' ' ')
    [ "$got" = 'EAGAIN had ' ] || fail "$kind, one session: $got $(cat err)"

    # Killed, or closed, in another session, which goes on without looking at the mount.
    mkfifo gate ready
    run one bash -c "coproc holder { exec python3 lock.py $point/f $kind hold; }; read -r got <&\${holder[0]}
        kill -9 \$holder_PID; echo killed >ready; read -r _ <gate" 2>err &
    session=$!
    read -r got <ready
    got=$(py two $kind wait) && [ "$got" = had ] || fail "$kind, killed in another session: $got"
    echo >gate
    wait $session
    rm gate ready
    coproc holder { py one $kind close 2>&1; }
    read -r got <&"${holder[0]}"
    got=$(py two $kind wait) && [ "$got" = had ] || fail "$kind, closed: $got"
    echo >&"${holder[1]}"
    wait "$holder_PID"
done

# Counters: what is read under a lock is what was written under it.
cat >count.py <<'P'
import fcntl, os, sys
name, kind, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(times):
    fd = os.open(name, os.O_RDWR)
    (fcntl.flock if kind == "flock" else fcntl.lockf)(fd, fcntl.LOCK_EX)
    number = int(os.pread(fd, 20, 0))
    os.pwrite(fd, b"%d\n" % (number + 1), 0)
    (fcntl.flock if kind == "flock" else fcntl.lockf)(fd, fcntl.LOCK_UN)
    os.close(fd)
P
for kind in flock record; do
    echo 10000000 >low/count
    for image in one two three; do run $image python3 count.py "$point/count" $kind 20 2>"err.$image" & counters[${#image}]=$!; pids="${pids:-} $!"; done
    # shellcheck disable=SC2086
    wait $pids
    pids=''
    [ "$(cat low/count)" = 10000060 ] || fail "$kind: counted to $(cat low/count) $(cat err.*)"
done

# Parts: another session may have what was given up of a range, and no more.
cat >parts.py <<'P'
import errno, fcntl, os, struct, subprocess, sys
f = open(sys.argv[1], "r+")
def lock(kind, start, length, file=f): fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", kind, 0, start, length, 0))
if sys.argv[2] == "ask":
    def ask(kind, start, length):
        try: lock(kind, start, length); return "had"
        except OSError as e: return errno.errorcode[e.errno]
    print(*[ask(fcntl.F_WRLCK, start, 10) for start in (0, 10, 20, 30)], ask(fcntl.F_RDLCK, 30, 10))
    asked = fcntl.fcntl(f, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 100, 0))
    print(struct.unpack("hhqqi4x", asked)[0] != fcntl.F_UNLCK)
else:
    lock(fcntl.F_WRLCK, 0, 40)
    lock(fcntl.F_UNLCK, 10, 10)
    lock(fcntl.F_RDLCK, 30, 10)
    print("parts", flush=True)
    sys.stdin.readline()
P
coproc holder { run one python3 parts.py "$point/f" hold 2>&1; }
read -r got <&"${holder[0]}"
got=$(run two python3 parts.py "$point/f" ask 2>&1 | tr '\n' ' ')
[ "$got" = 'EAGAIN had EAGAIN EAGAIN had True ' ] || fail "parts: $got"
echo >&"${holder[1]}"
wait "$holder_PID"

# A daemon that ends.
cat >lost.py <<'P'
import errno, fcntl, os, subprocess, sys, time
name, kind, pattern = sys.argv[1:4]
def attempt(what):
    try: return what() and "done"
    except OSError as e: return errno.errorcode[e.errno]
lock = fcntl.flock if kind == "flock" else fcntl.lockf
f, beside = os.open(name, os.O_RDWR), os.open(name + ".beside", os.O_CREAT | os.O_RDWR)
lock(f, fcntl.LOCK_EX)
os.write(f, b"before\n")
os.fsync(f)
pid = int(subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout.split()[0])
os.kill(pid, 9)
# Until it is there again.
while attempt(lambda: fcntl.flock(beside, fcntl.LOCK_EX) or 1) != "done": time.sleep(0.05)
print(attempt(lambda: os.pwrite(f, b"after\n", 0)), attempt(lambda: lock(f, fcntl.LOCK_EX | fcntl.LOCK_NB) or 1))
lock(f, fcntl.LOCK_UN)
os.close(f)
f = os.open(name, os.O_RDWR)
lock(f, fcntl.LOCK_EX)
print(attempt(lambda: os.pwrite(f, b"again\n", 0)))
os.close(f)
P
for cache in '' ",cache=$PWD/four.img:64M"; do
    for kind in flock record; do
        got=$(timeout 60 "$bypath" run --no-fuse --mount "$daemon,restart$cache" -- python3 lost.py "$point/f" $kind "^bindfs -f --multithreaded --enable-lock-forwarding $PWD/low" 2>err | tr '\n' ' ')
        [ "$got" = 'EIO EIO done ' ] || fail "lost, $kind, '$cache': $got $(cat err)"
        [ "$(head -1 low/f)" = again ] || fail "lost, $kind, '$cache': $(cat low/f)"
    done
done
[ $failed -eq 0 ] && echo fine
exit $failed
