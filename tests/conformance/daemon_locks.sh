#!/bin/bash
# own
# seconds: 120
# needs: bindfs
# A FUSE daemon that keeps locks is asked for them: programs of two sessions with a daemon each exclude one another by flock,
# record and OFD locks, as do those of one session; who waits gets the lock when it is given up, not before; a waiter that
# gets a signal gives up; a killed program's lock is free for others, of another session too; a file's close frees it. Who
# appends in three sessions at a time loses nothing: the daemon finds the end.
# Method: bindfs over one directory, which passes locks on, and Python's fcntl.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m
mkdir -p m low && touch low/f
cp "$tests/lock.py" .
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
for i in 1 2 3; do run sh -c "for n in \$(seq 100); do echo $i \$n >>$point/log; done" & appenders[i]=$!; done
wait "${appenders[@]}"
[ "$(sort -u low/log | wc -l)" -eq 300 ] || fail "appended: $(sort -u low/log | wc -l) of 300 lines"
[ $failed -eq 0 ] && echo fine
exit $failed
