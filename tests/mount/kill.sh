# The server is killed again and again while programs on both ways work: those on the
# short way never notice, nothing acknowledged is lost, the next mount is up at once.
rounds=${KILLS:-20}
cat >"$work/load" <<'LOAD'
dir=$1 done=$2
i=0
while [ ! -e "$done" ]; do
    i=$((i + 1))
    echo $i >"$dir/s.$i" && mv "$dir/s.$i" "$dir/k.$i" && [ "$(cat "$dir/k.$i")" = $i ] || { echo "lost $i"; exit 1; }
    [ $((i % 3)) -ne 0 ] || rm "$dir/k.$i" || exit 1
done
echo $i
LOAD
short sh "$work/load" "$mnt" "$work/done" >"$work/short.out" 2>&1 &
load=$!
# Nor does a session that begins meanwhile.
while [ ! -e "$work/done" ]; do short true || exit 1; done >"$work/begins.out" 2>&1 &
begins=$!
slow=0 lost=0
for round in $(seq "$rounds"); do
    begun=$EPOCHREALTIME
    served 2>>"$work/server.err" || { fail "round $round: $(tail -1 "$work/server.err")"; break; }
    [ $(((${EPOCHREALTIME/./} - ${begun/./}) / 1000)) -le 1000 ] || slow=$((slow + 1))
    (
        i=0
        while echo $i >"$mnt/m.$round.$i"; do
            echo $i >"$work/last"
            i=$((i + 1))
        done
    ) 2>/dev/null &
    writer=$!
    sleep "0.0$((RANDOM % 10))"
    kill -KILL $server
    wait $server 2>/dev/null
    wait $writer
    # All that was acknowledged.
    for i in $(seq 0 "$(cat "$work/last" 2>/dev/null || echo -1)"); do
        got=$("$bypath" cat "$image:/m.$round.$i" 2>&1)
        [ "$got" = "$i" ] || { lost=$((lost + 1)); echo "     lost: m.$round.$i: $got"; }
        [ "$i" -lt 20 ] || break
    done
    rm -f "$work/last"
done
touch "$work/done"
wait $load
code=$?
same "the short way does not notice $rounds kills" "$code: $(tail -1 "$work/short.out" | grep -c '^[0-9]*$')" '0: 1'
[ $code -eq 0 ] || tail -3 "$work/short.out"
wait $begins
same 'sessions begin beside it' "$?: $(cat "$work/begins.out")" '0: '
same 'what was acknowledged is there' $lost 0
echo "     kill: $slow of $rounds mounts took longer than a second"
umount -l "$mnt"
