#!/bin/bash
# The kernel's way in, call by call: an image mounted by `bypath mount`, and libfuse's own
# example `passthrough_hp` over a directory on tmpfs, both beside that tmpfs.
#
#   demo/kernel-way.sh [--quick] [--csv FILE]      figures: docs/results/kernel-mount.md
#
# Root, /dev/fuse. BYPATH names the program (target/release/bypath), PASSTHROUGH a compiled
# passthrough_hp; without it the source comes from Debian (`apt-get source`, g++, libfuse3-dev).
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
bypath=$(realpath "${BYPATH:-$here/../target/release/bypath}")
quick='' rounds=7 files=10000 mib=128 csv=''
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=--quick rounds=3 files=1000 mib=16 ;;
    --csv) csv=$2 && shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
[ "$(id -u)" -eq 0 ] || { echo "kernel-way.sh: only root may mount passthrough_hp for all and empty the kernel's caches" >&2; exit 2; }
[ -x "$bypath" ] || { echo "kernel-way.sh: $bypath is not there; run make first" >&2; exit 2; }

work=$(mktemp -d /dev/shm/bypath-kernel-way.XXXXXX) || exit 1
daemon=
end() {
    # Lazily: after a signal a program may still be inside.
    "$bypath" umount --lazy "$work/bypath" 2>/dev/null
    ! mountpoint -q "$work/passthrough_hp" || umount -l "$work/passthrough_hp"
    [ -z "$daemon" ] || wait "$daemon"
    rm -rf "$work"
}
trap end EXIT
mkdir "$work/tmpfs" "$work/bypath" "$work/passthrough_hp" "$work/source"

# Compiles passthrough_hp from the sources of Debian's package.
passthrough() {
    local where=$work/debian file
    mkdir -p "$where/lists/partial" "$where/parts" && cd "$where" || return
    # Where this machine's packages come from, their sources come from too.
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
        [ ! -f "$file" ] || sed 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$file" >"parts/${file##*/}"
    done
    [ ! -f parts/sources.list ] || mv parts/sources.list parts/main.list
    local apt=(-qq -o Dir::State::Lists="$where/lists" -o Dir::Etc::SourceList=/nonexistent -o Dir::Etc::SourceParts="$where/parts")
    apt-get "${apt[@]}" update && apt-get "${apt[@]}" source --download-only fuse3 || return
    tar xf fuse3_*.orig.tar.?z --strip-components 1 --wildcards '*/example/*' || return
    g++ -O2 -std=c++17 -D_FILE_OFFSET_BITS=64 -I/usr/include/fuse3 example/passthrough_hp.cc -o "$work/hp" -lfuse3 -lpthread
}
ways=(tmpfs)
hp=${PASSTHROUGH:-}
[ -n "$hp" ] || { (passthrough) >"$work/log" 2>&1 && hp=$work/hp; }
if [ -n "$hp" ]; then
    # It keeps a descriptor of every file that it has met: up to four for each entry of a benchmark's directory.
    ulimit -n "$(cat /proc/sys/fs/nr_open)" 2>/dev/null || ulimit -n "$(ulimit -Hn)"
    [ "$files" -le $(($(ulimit -n) / 5)) ] || files=$(($(ulimit -n) / 5))
    "$hp" --foreground "$work/source" "$work/passthrough_hp" &
    daemon=$!
    for _ in $(seq 500); do
        ! mountpoint -q "$work/passthrough_hp" || break
        sleep 0.01
    done
    mountpoint -q "$work/passthrough_hp" || { echo "kernel-way.sh: passthrough_hp does not mount" >&2; exit 1; }
    ways+=(passthrough_hp)
else
    echo "kernel-way.sh: no passthrough_hp, its column is left out:" >&2
    tail -3 "$work/log" >&2
fi
"$bypath" mkfs "$work/image" --size 4G >/dev/null && "$bypath" mount "$work/image" "$work/bypath" || exit 1
ways+=(bypath)

# Single calls, with the program's own benchmark.
against=()
for way in "${ways[@]}"; do against+=(--against "$work/$way"); done
"$bypath" bench micro $quick --entries "$files" "${against[@]}" --json "$work/calls.json" >"$work/calls.txt" 2>&1
# passthrough_hp lists neither `.` nor `..`, so it may end with other sums; they are compared below.
[ -s "$work/calls.json" ] || { cat "$work/calls.txt" >&2; exit 1; }

# What a benchmark of calls does not show; all ways in turn, in each round another one first.
empty_caches() { echo 2 >/proc/sys/vm/drop_caches; }
spent() { # WAY WHAT UNITS COMMAND…: nanoseconds a unit
    local way=$1 what=$2 units=$3 begun
    shift 3
    begun=${EPOCHREALTIME/./}
    "$@" >/dev/null 2>"$work/said" || { echo "kernel-way.sh: $way: $what failed:" >&2; cat "$work/said" >&2; exit 1; }
    echo "$what,$way,$(((${EPOCHREALTIME/./} - begun) * 1000 / units))" >>"$work/rounds"
}
# A tree of directories with 50 files each.
tree() { python3 - "$1/tree" "$files" <<'PY'
import os, sys
top, files = sys.argv[1], int(sys.argv[2])
for number in range(files):
    directory = f"{top}/{number // 50:04}"
    if number % 50 == 0:
        os.makedirs(directory)
    with open(f"{directory}/file{number}", "w") as out:
        out.write("x" * (number % 100))
PY
}
for way in "${ways[@]}"; do
    tree "$work/$way"
    dd if=/dev/zero of="$work/$way/still" bs=1M count="$mib" status=none
done
: >"$work/rounds"
for ((round = 0; round <= rounds; round++)); do
    for ((step = 0; step < ${#ways[@]}; step++)); do
        way=${ways[(round + step) % ${#ways[@]}]}
        cd "$work/$way" || exit 1
        spent "$way" 'sequential write 1 MiB' "$mib" dd if=/dev/zero of=big bs=1M count="$mib" conv=notrunc
        spent "$way" 'just written, read 1 MiB' "$mib" dd if=big of=/dev/null bs=1M
        dd if=still of=/dev/null bs=1M status=none
        spent "$way" 'sequential read 1 MiB' "$mib" dd if=still of=/dev/null bs=1M
        empty_caches
        spent "$way" 'stat cold' "$files" find tree -size +1000
        spent "$way" 'stat warm (find)' "$files" find tree -size +1000
        empty_caches
        spent "$way" 'ls -lR cold' "$files" ls -lR tree
        spent "$way" 'ls -lR' "$files" ls -lR tree
        cd / || exit 1
    done
    # The first round warms up.
    [ "$round" -gt 0 ] || : >"$work/rounds"
done

# What a start costs: a program, the same with the library in it, and `bypath run` of it.
session=$("$bypath" run --mount "$work/image:$work/bypath" -- env | grep -E '^(LD_PRELOAD|BYPATH_[A-Z_]*)=')
starts=$((rounds * 100))
python3 - "$starts" "$session" "$bypath" run --mount "$work/image:$work/bypath" -- /bin/true >"$work/starts" <<'PY'
import os, statistics, sys, time
rounds, session, run = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
bare = {"PATH": "/usr/bin:/bin"}
inside = bare | dict(line.split("=", 1) for line in session.splitlines())
starts = {"`true`": (["/bin/true"], bare), "`true` in a session": (["/bin/true"], inside), "`bypath run true`": (run, bare)}
took = {what: [] for what in starts}
for round in range(rounds):
    # In turn, so that what else the machine does meets all alike.
    for what in list(starts)[round % 3 :] + list(starts)[: round % 3]:
        command, environment = starts[what]
        begun = time.perf_counter_ns()
        _, status, usage = os.wait4(os.posix_spawn(command[0], command, environment), 0)
        elapsed = (time.perf_counter_ns() - begun) / 1000
        if status != 0:
            sys.exit(f"kernel-way.sh: {what}: status {status}")
        took[what].append((elapsed, (usage.ru_utime + usage.ru_stime) * 1e6, usage.ru_minflt))
print("\n**Starts**, with the mount up\n\n| start | µs | processor, µs | page faults |\n|---|---|---|---|")
for what, rows in took.items():
    print(f"| {what} | " + " | ".join(f"{statistics.median(column):.0f}" for column in zip(*rows)) + " |")
PY
[ -s "$work/starts" ] || exit 1

python3 - "$work" "$csv" "${ways[@]}" <<'PY'
import json, os, platform, statistics, sys
work, csv, ways = sys.argv[1], sys.argv[2], sys.argv[3:]
calls = json.load(open(f"{work}/calls.json"))
about = calls["environment"]
for row in calls["rows"]:
    if row["call"] != "readdir+stat" and len(set(row["checksum"])) != 1:
        sys.exit(f"kernel-way.sh: {row['call']}: the ways did not do the same work: {row['checksum']}")
rows = [(row["call"], row["mode"], row["ns"][: len(ways)]) for row in calls["rows"]]
measured = {}
for line in open(f"{work}/rounds"):
    what, way, ns = line.rsplit(",", 2)
    measured.setdefault(what, {}).setdefault(way, []).append(float(ns))
rows += [(what, "1 thread", [statistics.median(by[way]) for way in ways]) for what, by in measured.items()]
print(f"{about['cpu']} ({about['processors']} processors), Linux {about['kernel']}; ns a call, medians of {about['rounds']} rounds")
for mode in dict.fromkeys(mode for _, mode, _ in rows):
    print(f"\n**{mode}**\n\n| call | " + " | ".join(ways) + " | bypath / tmpfs" + (" | bypath / passthrough_hp" if len(ways) > 2 else "") + " |")
    print("|---" * (len(ways) + len(ways)) + "|")
    for call, of, ns in rows:
        if of == mode:
            ratios = [f"{ns[-1] / base:.2f}" for base in ns[:-1]]
            print(f"| {call} | " + " | ".join(f"{value:.0f}" for value in ns) + " | " + " | ".join(ratios) + " |")
print(open(f"{work}/starts").read(), end="")
if csv:
    with open(csv, "w") as out:
        out.write("call,mode," + ",".join(f"{way}_ns" for way in ways) + "\n")
        out.writelines(f"{call},{mode}," + ",".join(f"{value:.1f}" for value in ns) + "\n" for call, mode, ns in rows)
PY
