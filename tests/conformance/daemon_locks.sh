#!/bin/bash
# own
# seconds: 120
# needs: bindfs
# A FUSE daemon that keeps locks is asked for them: programs of two sessions with a daemon each exclude one another by flock,
# record and OFD locks, as do those of one session; who waits gets the lock when it is given up, not before; a waiter that
# gets a signal gives up; a killed program's lock is free for others, of another session too; a file's close frees it.
# Method: bindfs over one directory, which passes locks on, and Python's fcntl.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m
mkdir -p m low && touch low/f
cat >lock.py <<'P'
import errno, fcntl, os, signal, struct, sys
name, kind, what = sys.argv[1:4]
f = open(name, "r+")
def lock(type, wait):
    if kind == "flock":
        how = {fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}[type]
        return fcntl.flock(f, how | (0 if wait else fcntl.LOCK_NB))
    command = {"record": (fcntl.F_SETLK, fcntl.F_SETLKW), "ofd": (37, 38)}[kind][wait]
    fcntl.fcntl(f, command, struct.pack("hhqqi4x", type, 0, 0, 0, 0))
def attempt():
    try:
        lock(fcntl.F_WRLCK, False)
        return "had"
    except OSError as e:
        return errno.errorcode[e.errno]
def say(text): print(text, flush=True)
if what == "hold":
    lock(fcntl.F_WRLCK, True)
    say("had")
    sys.stdin.readline()
    open("given-up", "w").close()
    lock(fcntl.F_UNLCK, False)
    sys.stdin.readline()
elif what == "close":
    lock(fcntl.F_WRLCK, True)
    f.close()
    f = open(name, "r+")
    say("closed")
    sys.stdin.readline()
elif what == "try": say(attempt())
elif what == "wait":
    lock(fcntl.F_WRLCK, True)
    say("had" if os.path.exists("given-up") else "had too early")
elif what == "interrupted":
    def handler(*_): raise InterruptedError
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        lock(fcntl.F_WRLCK, True)
        say("had")
    except InterruptedError:
        say("interrupted")
P
run() { timeout 60 "$bypath" run --no-fuse --mount "fuse:bindfs -f --multithreaded --enable-lock-forwarding $PWD/low @:$point" -- "$@"; }
py() { run python3 lock.py "$point/f" "$@"; }
for kind in flock record ofd; do
    rm -f given-up
    coproc holder { py $kind hold 2>&1; }
    read -r got <&"${holder[0]}"
    [ "$got" = had ] || fail "$kind: $got"
    got=$(py $kind try) && [ "$got" = EAGAIN ] || fail "$kind, another session: $got"
    [ $kind != flock ] || ! flock -n low/f true || fail "flock, in the directory below"
    got=$(py $kind interrupted) && [ "$got" = interrupted ] || fail "$kind, a signal: $got"
    py $kind wait >waited 2>&1 &
    waiter=$!
    # It waits, or it will: what it says is the same.
    echo >&"${holder[1]}"
    wait $waiter
    [ "$(cat waited)" = had ] || fail "$kind, waiting: $(cat waited)"
    got=$(py $kind try) && [ "$got" = had ] || fail "$kind, given up: $got"
    echo >&"${holder[1]}"
    wait "$holder_PID"

    # Within a session; and killed there.
    touch given-up
    got=$(run bash -c "coproc holder { exec python3 lock.py $point/f $kind hold; }; read -r got <&\${holder[0]}
        python3 lock.py $point/f $kind try; kill -9 \$holder_PID; python3 lock.py $point/f $kind wait" 2>err | tr '\n' ' ')
    [ "$got" = 'EAGAIN had ' ] || fail "$kind, one session: $got $(cat err)"

    # Killed in another session, which goes on without looking at the mount.
    mkfifo gate ready
    run bash -c "coproc holder { exec python3 lock.py $point/f $kind hold; }; read -r got <&\${holder[0]}
        kill -9 \$holder_PID; echo killed >ready; read -r _ <gate" 2>err &
    session=$!
    read -r got <ready
    got=$(py $kind wait) && [ "$got" = had ] || fail "$kind, killed in another session: $got"
    echo >gate
    wait $session
    rm gate ready

    coproc holder { py $kind close 2>&1; }
    read -r got <&"${holder[0]}"
    got=$(py $kind try) && [ "$got" = had ] || fail "$kind, closed: $got"
    echo >&"${holder[1]}"
    wait "$holder_PID"
done
[ $failed -eq 0 ] && echo fine
exit $failed
