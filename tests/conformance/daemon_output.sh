#!/bin/bash
# own
# seconds: 60
# needs: squashfuse mksquashfs
# What a FUSE daemon prints: shown while it does not serve yet; afterwards it is in the user's file, or in one that the
# message about its end names. One that ends with the session leaves nothing. Method: scripts around squashfuse, by a socket.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m
mkdir -p m low tmp && echo hello >low/f && mksquashfs low low.sqfs -quiet -no-progress >/dev/null 2>&1
export TMPDIR=$PWD/tmp
cat >noisy <<'S'
#!/bin/sh
echo begins >&2
squashfuse -f "$1" "$2" &
echo $! >"${1%/*}/pid"
wait
echo 'a dump' >&2
echo 'of many lines'
exit 3
S
cat >unwilling <<'S'
#!/bin/sh
echo 'no such cluster' >&2
exit 4
S
chmod 755 noisy unwilling
run() { # SPEC-AND-OPTIONS COMMAND…
    local what=$1
    shift
    timeout 50 "$bypath" run --no-fuse --mount "fuse:$what,carrier=socket" -- "$@" 2>err
}
ends="kill -9 \$(cat pid); while cat $point/f >/dev/null 2>&1; do sleep 0.05; done"

run "$PWD/noisy $PWD/low.sqfs @:$point" sh -c "cat $point/f; $ends" >out
[ "$(cat out)" = hello ] || fail "it does not serve: $(cat out err)"
grep -qx begins err || fail "what it says at its start is not shown: $(cat err)"
grep -q 'a dump' err && fail 'the dump is on the terminal'
log=$(sed -n 's/.*the daemon ended.*; what it said is in //p' err)
[ -n "$log" ] && [ "$(tail -n 2 "$log" | sort | tr '\n' ' ')" = 'a dump of many lines ' ] || fail "the log: '$log' $(cat err)"
[ "$(stat -c %a "$log")" = 600 ] || fail "others can read it: $(stat -c %a "$log")"
rm -f tmp/*.log

run "$PWD/noisy $PWD/low.sqfs @:$point,log=$PWD/own.log" sh -c "cat $point/f; $ends" >out
grep -q "what it said is in $PWD/own.log" err && grep -q 'a dump' own.log || fail "log=: $(cat err)"
[ -z "$(ls tmp | grep "log$")" ] || fail "left: $(ls tmp)"

run "$PWD/unwilling @:$point" true && fail 'it was started'
grep -qx 'no such cluster' err || fail "why it does not start: $(cat err)"
run "$PWD/noisy $PWD/low.sqfs @:$point" cat "$point/f" >out || fail "orderly: $(cat err)"
grep -q 'ended' err && fail "an orderly end: $(cat err)"
[ -z "$(ls tmp | grep "log$")" ] || fail "left: $(ls tmp)"
[ $failed -eq 0 ] && echo fine
exit $failed
