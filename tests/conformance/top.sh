#!/bin/bash
# `bypath top` shows programs of a session with what they do, follows them as they come and go, and leaves the terminal as it was.
# own
# needs: tmux
# seconds: 120
. "$(dirname "$0")/own.sh"
"$bypath" mkfs i --size 64M >/dev/null
mkfifo go
"$bypath" run --no-fuse -m "i:$work/p" -- bash -c '
    cd "$1/p"
    exec 3>held
    echo ready >"$1/ready"
    # What it does goes on until somebody says so.
    while [ ! -e "$1/end" ]; do for n in $(seq 200); do [ -e held ]; >f; rm f; done; done' bash "$work" &
session=$!
wait_until test -s ready
export TMUX_TMPDIR=$work
tmux -f /dev/null new-session -d -s top -x 130 -y 20 sh
terminal() { tmux send-keys -t top "$@"; }
screen() { tmux capture-pane -p -t top; }
terminal "PS1='prompt> '; clear; '$bypath' top -d 0.2" Enter
shown() { screen | grep -qE "$1"; }
say() { # NAME REGEX
    wait_until shown "$2"
    code=$?
    [ $code -eq 0 ] || screen
    verdict "top: $1" $code
}
say 'titles' 'PROGRAM \(IMAGE\) +PID +S +CALLS/s +CHANGES/s +FDS'
say 'the image' "$work/p \(i\) .*/64 MiB"
# Changes a second are seen at once, calls when there are some thousand.
say 'changes a second' 'bash \(i\) +[0-9]+ [A-Z] +[0-9k.]+ +[1-9][0-9k.]* +[0-9]+'
say 'calls a second' 'bash \(i\) +[0-9]+ [A-Z] +[1-9][0-9k.]* +[0-9k.]+'
terminal p
touch end
wait $session
gone() { ! shown 'bash \(i\)'; }
wait_until gone
verdict 'top: who has ended is gone' $?
terminal q
say 'the terminal is as it was' '^prompt> ?$'
tmux kill-server
"$bypath" check i >/dev/null
verdict 'top: the image is sound' $?
exit $failed
