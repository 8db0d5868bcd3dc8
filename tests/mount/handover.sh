# A mount follows another: the image is free when `umount` returns, however late the server ends.
stopped() { # until each thread of the server is
    kill -STOP $server
    until ! grep -hv ') T' /proc/$server/task/*/stat; do sleep 0.01; done
}
gone() { for _ in $(seq 1000); do grep -q " $mnt fuse" /proc/mounts || return 0; sleep 0.02; done; return 1; }
served || fail 'no mount'
stopped >/dev/null
timeout 60 "$bypath" umount "$mnt" &
umount=$!
gone && ok 'a stopped server does not keep the mount' || fail 'the mount stays'
# The mount has gone, the server has not: in half a second a umount that does not wait has long returned.
sleep 0.5
kill -0 $umount 2>/dev/null && ok 'umount waits for the server' || fail 'umount returns before the server has ended'
kill -CONT $server
wait $umount
same 'and says that all is well' $? 0
"$bypath" mount "$image" "$mnt" && ok 'a new mount is possible at once' || fail 'no new mount'
"$bypath" umount "$mnt"
wait $server

# Taken away by another program, which does not wait.
served || fail 'no mount'
stopped >/dev/null
# By name alone: whoever looks at the mount first waits for the server.
umount -c -i -n "$mnt"
"$bypath" mount "$image" "$mnt" >"$work/said" 2>&1 &
mount=$!
sleep 1
kill -CONT $server
wait $mount
same 'a new mount waits for the server of one that is gone' "$? $(cat "$work/said")" '0 '
wait $server
"$bypath" umount "$mnt"

# Another mount namespace has a copy: the mount goes on there, and umount does not wait for that.
served || fail 'no mount'
unshare -m --propagation private sleep 100 &
other=$!
until [ "$(cat /proc/$other/comm)" = sleep ]; do sleep 0.01; done
timeout 60 "$bypath" umount "$mnt" >"$work/said" 2>&1
same 'a mount that another namespace has too' "$? $(grep -c "when its server, process $server, has ended" "$work/said") $(grep -c " $mnt fuse" /proc/$other/mounts)" '0 1 1'
kill $other
wait $server
same 'ends with that' $? 0
