#!/bin/bash
# own
# seconds: 60
# What a cache holds that the directory has not got is shown by `mounts` and `info` (text and --json), and gone when it is
# written back; so are names and bytes that have come from below, and for how long what was changed has waited. An image that is a cache is mounted, changed and opened by nothing that would take it for one with files of
# its own: `bypath mount`, `import`.
. "$(dirname "$0")/own.sh"
mkdir low m
echo one >low/f
session() { timeout 40 "$bypath" run --no-fuse --mount "host:$work/low:$work/m,cache=$work/c.img:64M$1" -- bash -c "$2"; }
session '' 'cat m/f; "'"$bypath"'" mounts' >out || fail 'a session that reads'
same 'clean' "$(grep -c '0 names and 0 files not in the directory yet' out)" 1
session ',sync=image' 'echo two >m/f; mkdir m/d; "'"$bypath"'" mounts --json >json; "'"$bypath"'" mounts' >out || fail 'a session that writes'
same 'shown' "$(grep -c ' names and . files not in the directory yet' out)" 1
same 'names' "$(python3 -c 'import json; r = json.load(open("json"))[0]; print(r["state"], r["dirty_names"] >= 1, r["dirty_files"] >= 1, r["rounds"] >= 0)')" 'cache True True True'
same 'below' "$(cat low/f)" two
"$bypath" info c.img >out || fail 'info'
same 'info' "$(grep -c "^cache of    host:$work/low; 0 names and 0 files not there yet" out)" 1
same 'info --json' "$("$bypath" info --json c.img | python3 -c 'import json, sys; c = json.load(sys.stdin)["cache"]; print(c["dirty_names"], c["dirty_files"], c["written_bytes"] > 0)')" '0 0 True'
"$bypath" mkfs plain.img --size 16M >/dev/null && "$bypath" info --json plain.img | grep -q '"cache"' && fail 'a plain image is no cache'
if [ -c /dev/fuse ]; then
    "$bypath" mount c.img m 2>err && fail 'a cache was mounted alone'
    same 'mount' "$(grep -c 'it is a cache' err)" 1
fi
"$bypath" import low c.img:/new 2>err && fail 'a cache was imported into'
same 'import' "$(grep -c 'it is a cache' err)" 1

# What has come from below, and what waits to go there: there is no room for it, so it waits until there is.
mkdir wide && mount -t tmpfs -o size=1M wide wide && mkdir wide/low && for i in $(seq 40); do head -c 1000 /dev/zero >wide/low/f$i; done
figure() { python3 -c 'import json, sys; c = json.load(open(sys.argv[1]))[0]; print(*(c[key] for key in sys.argv[2:]))' "$@"; }
# The server lists a directory itself when it has begun to watch it.
cat >session.sh <<S
cat m/f* >/dev/null; sleep 1; "$bypath" mounts --json >cold
cat m/f* >/dev/null; "$bypath" mounts --json >warm
head -c 3000000 /dev/zero >m/new; "$bypath" mounts --json >dirty
"$bypath" stats --prometheus >prometheus; "$bypath" cache status --json w.img >status
mount -o remount,size=8M wide
S
timeout 40 "$bypath" run --no-fuse --mount "host:$work/wide/low:$work/m,cache=$work/w.img:64M,sync=image" -- bash session.sh 2>err || fail "figures: $(cat err)"
same 'fetched' "$(figure cold fetched_names fetched_bytes dirty_bytes lag_ms)" '40 40000 0 0'
same 'warm' "$(figure warm fetches fetched_names fetched_bytes)" "$(figure cold fetches fetched_names fetched_bytes)"
same 'calls' "$(($(figure warm calls) > $(figure cold calls)))" 1
same 'waiting' "$(figure dirty dirty_names dirty_files dirty_bytes) $(($(figure dirty lag_ms) > 0))" '1 1 3000000 1'
same 'Prometheus' "$(grep -c '^bypath_cache_\(fetched_bytes_total\|fetches_total\|dirty_bytes\|lag_milliseconds\){' prometheus)" 4
same 'status' "$(python3 -c 'import json; c = json.load(open("status")); print(c["bytes"], c["lag_ms"] > 0)')" '3000000 True'
same 'written' "$("$bypath" cache status --json w.img | python3 -c 'import json, sys; c = json.load(sys.stdin); print(c["bytes"], c["lag_ms"], c["written"] >= 3000000)')" '0 0 True'
umount wide
exit $failed
