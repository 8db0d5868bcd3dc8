#!/bin/bash
# In a terminal: bash completes verbs, options and files of `bypath`; `doctor` and `stats` fit; manual pages are pages.
# own
# needs: tmux bash
# seconds: 120
. "$(dirname "$0")/own.sh"
"$bypath" mkfs some-image.img --size 64M >/dev/null || fail 'no image'
mkdir bin && ln -s "$bypath" bin/bypath
bin/bypath completions bash >completions
bin/bypath man pages || fail 'no manual pages'
export TMUX_TMPDIR=$work
tmux -f /dev/null new-session -d -s terminal -x 100 -y 40 'bash --norc --noprofile'
type_in() { tmux send-keys -t terminal "$@"; }
screen() { tmux capture-pane -p -t terminal; }
shown() { screen | grep -qE -- "$1"; }
say() { # NAME REGEX
    wait_until shown "$2"
    code=$?
    [ $code -eq 0 ] || screen
    verdict "terminal: $1" $code
}
fresh() { # forgets the line and the screen
    type_in C-c
    type_in 'clear' Enter
    wait_until shown '^prompt> *$'
}
type_in "PS1='prompt> '; PATH=$work/bin:\$PATH; . ./completions; clear" Enter
say 'a prompt' '^prompt> *$'
type_in 'bypath mkf' Tab 'some'
say 'a verb is completed' '^prompt> bypath mkfs some$'
fresh
type_in 'bypath run --no-f' Tab 'x'
say 'an option is completed' '^prompt> bypath run --no-fuse x$'
fresh
type_in 'bypath info some-' Tab 'x'
say 'a file is completed' '^prompt> bypath info some-image.img x$'
fresh
type_in 'bypath doctor | tail -30; echo ended=$?' Enter
say 'doctor' 'shared cache'
say 'doctor ends' 'ended=0'
fresh
type_in 'bypath stats some-image.img' Enter
say 'stats' 'may grow to 64 MiB'
fresh
if command -v man >/dev/null; then
    type_in 'man -P cat -l pages/bypath-run.1 | head -12' Enter
    say 'a manual page' 'NAME'
fi
pages=$(find pages -name '*.1' | wc -l)
verbs=$(bin/bypath --help | sed -n '/^Commands:/,/^$/p' | grep -cE '^  [a-z]')
[ "$pages" -ge "$verbs" ] && [ "$verbs" -gt 20 ]
verdict "terminal: each of $verbs verbs has a manual page" $?
tmux kill-server
exit $failed
