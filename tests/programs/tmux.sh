#!/bin/sh
# needs: tmux
# A server on a socket in the image; windows whose shells work there, what they print piped to a file, a buffer saved and loaded.
unset TMUX
t() { tmux -f /dev/null -S sock "$@"; }
until_there() { for _ in $(seq 500); do [ -e "$1" ] && return; sleep 0.02; done; echo "no $1"; }
t new-session -d -s s -x 80 -y 24 'env PS1= sh'
t pipe-pane -t s 'cat >piped'
t send-keys -t s 'echo one >f; cat f; cd ..; pwd >/dev/null; cd - >/dev/null; touch done1' Enter
until_there done1
t new-window -t s: -n w 'cat f; echo two >>f; touch done2; sleep 100'
until_there done2
t list-windows -t s -F '#{window_index} #{window_panes}'
t set-buffer 'text of a buffer'
t save-buffer saved
cat saved f
t load-buffer f
t show-buffer
t split-window -t s: -c "$PWD" 'pwd >where; touch done3; sleep 100'
until_there done3
[ "$(cat where)" = "$PWD" ] && echo 'in the directory'
t display-message -p -t s '#{session_name}'
t kill-server
for _ in $(seq 500); do t has-session 2>/dev/null || break; sleep 0.02; done
t has-session 2>&1 | sed 's/(.*//'
rm -f piped sock where
