#!/bin/bash
# needs: tail
# Logs followed while they grow, are cut, and are put in place of one another.
wait_for() {
    for _ in $(seq 3000); do
        grep -q "$1" "$2" 2>/dev/null && return
        sleep 0.01
    done
    echo "no $1 in $2"
}
echo one >log
tail -f -s 0.02 log >out 2>/dev/null &
f=$!
tail -F -s 0.02 log >OUT 2>/dev/null &
F=$!
wait_for one out
wait_for one OUT
echo two >>log
wait_for two out
wait_for two OUT
mv log log.1
echo three >log
wait_for three OUT
echo four >>log.1
wait_for four out
: >log
sleep 0.06
echo five >>log
wait_for five OUT
kill $f $F
wait 2>/dev/null
sort out
sort OUT
(sleep 0.1) &
tail -f -s 0.02 --pid=$! log.1
tail -c 3 log
tail -n +2 log.1
seq 1000 >n
tail -n 3 n
tail -c 20 n | head -c 5
tac n | head -2
head -n -998 n
