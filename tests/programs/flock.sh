#!/bin/bash
# needs: flock pgrep
# Locks on files and directories, shared and alone, waited for, refused, held by children, given back.
n=0
echo 0 >count
for i in 1 2 3 4; do (for j in 1 2 3 4 5; do flock lock sh -c 'n=$(cat count); echo $((n + 1)) >count'; done) & done
wait
cat count
flock lock -c 'flock -n lock echo got; echo "exit $?"; flock -n -E 7 lock true; echo "exit $?"; flock -w 0.05 lock true; echo "exit $?"'
flock -s lock -c 'flock -sn lock echo both; flock -xn lock echo alone; echo "exit $?"'
(
    flock -n 9 && echo held
    flock -n lock true
    echo "exit $?"
    flock -u 9
    flock -n lock echo free
) 9>lock
mkdir d
flock d -c 'flock -n d true; echo "exit $?"'
exec 8>lock
flock 8
(flock -n 8 && echo inherited)
flock -n lock true
echo "exit $?"
exec 8>&-
flock -n lock echo released
(
    exec 7>lock
    flock 7
    touch ready
    sleep 0.2
    echo first >>order
) &
until [ -e ready ]; do sleep 0.01; done
flock lock sh -c 'echo second >>order'
wait
cat order
flock -o lock -c '(cd / && exec sleep 0.1) & echo not kept'
flock -n lock echo free
wait
(
    flock lock sleep 60 &
    echo $! >pid
    wait
) 2>/dev/null &
until [ -s pid ] && pgrep -P "$(cat pid)" >/dev/null; do sleep 0.01; done
flock -n lock true
echo "exit $?"
pkill -P "$(cat pid)" 2>/dev/null
kill "$(cat pid)" 2>/dev/null
wait
flock -w 60 lock echo after
flock none/x true 2>/dev/null
echo "exit $?"
rm pid
