# A server that is killed while it waits in the kernel for its own answer: the guard ends its mount.
export PYTHONDONTWRITEBYTECODE=1
killed() { # GUARD…: what becomes of the server, and of one who has touched the mount
    unshare -m --propagation private bash -c '
        mnt=$1 here=$2
        shift 2
        mount -t fusectl none /sys/fs/fuse/connections || exit 1
        exec 3< <(exec python3 "$here/stuck.py" "$mnt" "$@" 2>&1)
        server=$!
        read -r -t 60 said <&3
        [ "$said" = stuck ] || { echo "$said"; exit 1; }
        stat "$mnt/y" >/dev/null 2>"$mnt.said" &
        user=$!
        for _ in $(seq 200); do grep -q "^State:.[DS]" /proc/$user/status && [ "$(cat /proc/$user/comm)" = stat ] && break; sleep 0.05; done
        # The guard has to be there.
        patience=20
        [ $# -eq 0 ] || { patience=600; until pgrep -f "guard-mount $server" >/dev/null; do sleep 0.05; done; }
        kill -KILL $server
        # Without a guard this is for ever, on the slowest machine too; with one it is a matter of when it gets its turn.
        for _ in $(seq $patience); do kill -0 $server 2>/dev/null || kill -0 $user 2>/dev/null || break; sleep 0.05; done
        kill -0 $server 2>/dev/null && echo -n "stuck, " || echo -n "ended, "
        kill -0 $user 2>/dev/null && echo stuck || echo ended
        umount -f "$mnt" 2>/dev/null
        wait $user
        umount -l "$mnt" 2>/dev/null
    ' bash "$mnt" "$here" "$@" 2>&1
}
same 'without a guard all hang' "$(killed)" 'stuck, stuck'
same 'with one nobody does' "$(killed "$bypath" guard-mount)" 'ended, ended'
# A server of ours has one, with a file to end the connection by; it goes with the server.
guards() { pgrep -f "^bypath guard-mount $1 " | wc -l; }
served || fail 'no mount'
has_guards() { [ "$(guards $server)" = "$1" ]; }
wait_until has_guards 1
same 'a server has a guard' "$(guards $server)" 1
guard=$(pgrep -f "^bypath guard-mount $server ")
same 'that can end the connection' "$(readlink "/proc/$guard/fd/0" | grep -c '/abort$')" 1
kill -USR1 "$guard"
sleep 0.5
same 'and does not while the server lives' "$(guards $server) $(stat -f -c %T "$mnt")" '1 fuseblk'
kill -KILL $server
wait $server 2>/dev/null
wait_until has_guards 0
same 'it goes with the server' "$(guards $server)" 0
stat -f "$mnt" 2>&1 | grep -q 'not connected' && ok 'and the mount says that there is none' || fail "a dead mount: $(stat -f "$mnt" 2>&1)"
"$bypath" umount "$mnt"
