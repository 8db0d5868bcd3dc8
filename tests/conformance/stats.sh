#!/bin/bash
# `bypath stats` tells who uses an image and what for, as text, JSON and for Prometheus, by name and by session.
# own
. "$(dirname "$0")/own.sh"
"$bypath" mkfs i --size 64M >/dev/null
mkfifo go
# 9,000 calls and more, 50 files made, three of them held open.
"$bypath" run --no-fuse -m "i:$work/p" -- bash -c '
    cd "$1/p"
    for n in $(seq 50); do >"f$n"; done
    exec 3<f1 4<f2 5<f3
    for n in $(seq 3000); do [ -e f1 ] && [ -e f2 ] && [ -e none ]; done
    "$0" stats >"$1/around"
    echo ready >"$1/ready"
    read -r _ <"$1/go"' "$bypath" "$work" &
session=$!
wait_until test -s ready
"$bypath" stats --json i >json
"$bypath" stats --prometheus i >prometheus
"$bypath" stats i >text
"$bypath" stats >all
echo >go
wait $session
"$bypath" stats --json i >after
say() { # NAME COMMAND…
    "${@:2}" >out 2>&1
    code=$?
    [ $code -eq 0 ] || cat out
    verdict "stats: $1" $code
}
say 'JSON' python3 - json after <<'END'
import json, sys

image = json.load(open(sys.argv[1]))["images"][0]
(process,) = [one for one in image["processes"] if one["command"] == "bash"]
assert process["fds"] >= 4 and process["calls"] >= 8192 and process["state"] == "S", process
assert image["changes"] >= 50 and image["files"] >= 51 and image["open_files"] >= 3 and image["waiting"] == 0, image
assert image["used"] + image["free"] <= image["limit"] == 64 << 20, image
assert image["calls"]["symbols"] >= process["calls"] and image["cached_max"] >= image["cached"] >= 50, image
after = json.load(open(sys.argv[2]))["images"][0]
assert not after["processes"] and after["changes"] >= image["changes"], after
END
say 'Prometheus' python3 - prometheus "$work" <<'END'
import re, sys

kinds, values = {}, {}
for line in open(sys.argv[1]):
    if line.startswith("# TYPE "):
        _, _, name, kind = line.split()
        assert name not in kinds
        kinds[name] = kind
    elif not line.startswith("# HELP "):
        name, labels, value = re.fullmatch(r'([a-z_]+)\{((?:[a-z]+="[^"]*",?)+)\} (\d+)\n', line).groups()
        assert (name, labels) not in values, line
        assert name in kinds and name.endswith("_total") == (kinds[name] == "counter"), line
        assert f'image="' in labels
        values[name, labels] = int(value)
assert values["bypath_image_processes", 'image="i"'] >= 1, values
assert sum(value for (name, labels), value in values.items() if name == "bypath_process_calls_total" and 'command="bash"' in labels) >= 8192
END
say 'text' grep -q "bash: [0-9]* calls, [0-9]* fds" text
say 'all sessions' grep -q "^$work/i at $work/p$" all
say 'the session around' grep -q "^$work/i at $work/p$" around
"$bypath" check i >/dev/null
verdict 'stats: the image is sound' $?
"$bypath" top i </dev/null >out 2>&1
[ $? -eq 1 ] && [ "$(wc -l <out)" -eq 1 ] && grep -q 'bypath stats' out
verdict 'top: says what to use without a terminal' $?
exit $failed
