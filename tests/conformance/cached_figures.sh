#!/bin/bash
# own
# seconds: 60
# What a cache holds that the directory has not got is shown by `mounts` and `info` (text and --json), and gone when it is
# written back. An image that is a cache is mounted, changed and opened by nothing that would take it for one with files of
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
exit $failed
