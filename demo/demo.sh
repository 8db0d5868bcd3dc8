#!/bin/bash
# The main job, side by side with the kernel.
#
# Takes a real tree, puts it into a fresh tmpfs directory and into a fresh image,
# runs seven programs over both, warm, in interleaved rounds, compares what they
# say and leave behind, and prints how long they took.
#
#   TREE=DIR    where the files come from            (default: /usr, then the Rust tools)
#   FILES=N     how many of them, about 20 KB each    (default 50000)
#   ROUNDS=N    measured rounds; the best counts     (default 3)
#   SHM=DIR     a tmpfs with room for four copies    (default /dev/shm)
#   RESULTS=F   also write the table to F, tab-separated
#
# Exit code: 0 when every result was the same on both sides, whatever the times.
set -u
export LC_ALL=C TZ=UTC
here=$(cd "$(dirname "$0")" && pwd)
bypath=$(realpath "${BYPATH:-$here/../target/release/bypath}")
point=${POINT:-/bp}
files=${FILES:-50000} rounds=${ROUNDS:-3} shm=${SHM:-/dev/shm}
[ -x "$bypath" ] || { echo "demo: $bypath is not there; run make first" >&2; exit 2; }

bold= dim= off=
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' off=$'\e[0m'; fi
say() { printf '%s\n' "$*"; }
die() { echo "demo: $*" >&2; exit 2; }

work=$(mktemp -d "$shm/bypath-demo.XXXXXX") || exit 2
holder=
clean_up() {
    if [ -n "$holder" ]; then kill "$holder" 2>/dev/null; wait "$holder" 2>/dev/null; fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
export BYPATH_SEGMENT_DIR=$work
mkdir "$work/k" "$work/out"
image=$work/i

# ---- the tree ----

# Up to $files regular files and symlinks, in the order of their names; large files
# are passed over while the average would be above 28 KiB, so that 50,000 files are about 1 GB.
choose() { # ROOT HOW-MANY
    find "$1" -xdev \( -type f -o -type l \) ! -path '*[[:cntrl:]]*' -readable -printf '%s\t%P\n' 2>/dev/null | sort -t "$(printf '\t')" -k2 |
        awk -F '\t' -v max="$2" -v average=28672 '
            count < max && total + $1 <= (count + 1) * average + 33554432 { count++; total += $1; print $2 }'
}

gather() {
    local roots=(${TREE:-/usr "$(rustc --print sysroot 2>/dev/null)" "${CARGO_HOME:-${HOME:-/root}/.cargo}/registry/src"}) root have=0 number=0
    for root in "${roots[@]}"; do
        [ -d "$root" ] && [ "$have" -lt "$files" ] || continue
        choose "$root" $((files - have)) >"$work/list"
        local found
        found=$(wc -l <"$work/list")
        [ "$found" -gt 0 ] || continue
        number=$((number + 1))
        mkdir -p "$work/k/tree/$number"
        tar -C "$root" --no-recursion -cf - -T "$work/list" 2>/dev/null | tar -C "$work/k/tree/$number" -xpf - || die "copying $root failed"
        have=$((have + found))
        say "  $found files from $root"
    done
    rm -f "$work/list"
    [ "$have" -gt 0 ] || die "no files in ${roots[*]}"
    [ "$have" -ge "$files" ] || say "  ${bold}only $have files found, $files were wanted${off} (TREE=DIR names another tree)"
}

room() { df -B1 --output=avail "$work" | tail -1; }
need=$((files * 28672 * 4 + (256 << 20)))
if [ "$(room)" -lt "$need" ]; then
    fit=$((($(room) - (128 << 20)) / (28672 * 4)))
    [ "$fit" -ge 500 ] || die "$shm has too little room ($(($(room) >> 20)) MiB); name a larger tmpfs with SHM="
    say "${bold}$shm has only $(($(room) >> 20)) MiB: $fit files instead of $files${off} (SHM= names another tmpfs)"
    files=$fit
fi

say "${bold}Gathering a real tree${off}"
gather
bytes=$(find "$work/k/tree" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }')
count=$(find "$work/k/tree" ! -type d | wc -l)
dirs=$(find "$work/k/tree" -type d | wc -l)
say "  $count files in $dirs directories, $((bytes / 1000000)) MB, in $work/k on tmpfs"
"$bypath" mkfs "$image" --size $(((bytes * 3 >> 20) + 512 + files / 100))M >/dev/null || die "mkfs failed"

# Keeps the image in use, as a session at work does.
"$bypath" run --mount "$image:$point" -- sleep 100000 &
holder=$!
begun=$EPOCHREALTIME
"$bypath" import --quiet "$work/k/tree" "$image:/tree" || die "import failed"
ended=$EPOCHREALTIME
say "  imported into an image in $(awk "BEGIN { printf \"%.2f\", (${ended/./} - ${begun/./}) / 1e6 }") s"

# ---- the programs ----

# grep twice: in the text alone (-I), as one searches sources, where it is done with a binary
# file after its first bytes; and in everything, where most of its time is its own, in binary files.
names=('ls -lR' 'find' 'du -s' 'grep -rI' 'grep -r' 'cp -r' 'tar c' 'rm -rf')
lines=('ls -lR tree' 'find tree' 'du -s tree' 'grep -rI deadlock tree' 'grep -r deadlock tree' 'cp -r tree copy' 'tar c tree | wc -c' 'rm -rf copy')
targets=(0.40 0.40 0.25 0.55 0.55 0.50 0.80 0.25)
sorted=(no yes no yes yes no no no)
declare -A best all same

side() { # k|b DIRECTORY-INDEPENDENT COMMAND-LINE OUTPUT TIMES
    if [ "$1" = k ]; then
        "$here/measure.sh" "$work/k" "$3" "$4" "$2"
    else
        "$bypath" run --mount "$image:$point" -- "$here/measure.sh" "$point" "$3" "$4" "$2"
    fi
}

# What both sides wrote, in one order.
agree() { # INDEX
    local k=$work/out/k b=$work/out/b
    if [ "${sorted[$1]}" = yes ]; then
        sort -o "$k" "$k"
        sort -o "$b" "$b"
    fi
    sort -o "$k.err" "$k.err"
    sort -o "$b.err" "$b.err"
    cmp -s "$k" "$b" && cmp -s "$k.err" "$b.err"
}

# Everything about a tree except the times of its copies, contents as checksums; twice the same listing means the same tree.
listing='cd "$1" && find . -printf "%P %y %m %n %U %G %s %l\n" | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum'
listed() { # k|b COMMAND-LINE
    side "$1" "$2" "$work/out/$1" "$work/out/times"
}

mismatch() { # INDEX WHAT
    same[$1]=no
    echo
    echo "DIFFERENT: ${names[$1]}: $2" >&2
    diff "$work/out/k" "$work/out/b" | head -5 >&2
    diff "$work/out/k.err" "$work/out/b.err" | head -5 >&2
}

# A closer look, once: contents and attributes, not only what the program said.
verify() { # INDEX
    case ${names[$1]} in
    'cp -r')
        listed k "sh -c '$listing' sh copy"; listed b "sh -c '$listing' sh copy"
        agree "$1" || mismatch "$1" 'the copies differ'
        ;;
    'tar c')
        listed k 'tar c --sort=name tree | sha256sum'; listed b 'tar c --sort=name tree | sha256sum'
        agree "$1" || mismatch "$1" 'the archives differ'
        ;;
    'rm -rf')
        listed k 'ls -A .'; listed b 'ls -A .'
        agree "$1" || mismatch "$1" 'something is left'
        ;;
    esac
}

one() { # INDEX ROUND
    local index=$1 round=$2 order wall user code each
    order='k b'
    [ $((round % 2)) -eq 1 ] && order='b k'
    for each in $order; do
        side "$each" "${lines[$index]}" "$work/out/$each" "$work/out/$each.times"
        code=$?
        [ -f "$work/out/$each.times" ] || die "${names[$index]} did not run"
        read -r wall user _ code <"$work/out/$each.times"
        rm -f "$work/out/$each.times"
        eval "code_$each=$code"
        [ "$round" -gt 0 ] || continue
        all[$each$index]+="$wall "
        if [ -z "${best[$each$index]:-}" ] || [ "$wall" -lt "${best[$each$index]}" ]; then
            best[$each$index]=$wall
            best[u$each$index]=$user
        fi
    done
    if [ "$code_k" != "$code_b" ]; then
        mismatch "$index" "exit code $code_k on tmpfs, $code_b in the image"
    elif ! agree "$index"; then
        mismatch "$index" 'the output differs'
    fi
    if [ "$round" -eq 0 ]; then verify "$index"; fi
}

say "${bold}Running seven programs over both${off}, once to warm up and compare closely, then $rounds measured rounds"
for ((round = 0; round <= rounds; round++)); do
    for index in "${!names[@]}"; do
        [ -t 1 ] && printf '\r  round %d: %-10s' "$round" "${names[$index]}"
        one "$index" "$round"
    done
done
[ -t 1 ] && printf '\r%30s\r' ''

# ---- the table ----

median() { tr ' ' '\n' <<<"$1" | grep . | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
say
say "$count files, $dirs directories, $((bytes / 1000000)) MB; best of $rounds, seconds (median in brackets)"
printf "${bold}%-9s %17s %17s %7s %7s %7s  %s${off}\n" program tmpfs bypath ratio target floor same
failed=0 missed=0
[ -z "${RESULTS:-}" ] || printf 'program\ttmpfs\tbypath\tratio\ttarget\tfloor\tsame\n' >"$RESULTS"
for index in "${!names[@]}"; do
    is_same=${same[$index]:-yes}
    if [ "$is_same" = yes ]; then mark='✓'; else mark='✗ DIFFERENT'; failed=$((failed + 1)); fi
    row=$(awk -v k="${best[k$index]}" -v b="${best[b$index]}" -v mk="$(median "${all[k$index]}")" -v mb="$(median "${all[b$index]}")" \
        -v u="${best[uk$index]}" -v t="${targets[$index]}" 'BEGIN {
            printf "%.3f %.3f %.3f %.3f %.2f %.2f %s", k/1e6, mk/1e6, b/1e6, mb/1e6, b/k, u*1e6/k, (b/k <= t + 0.005 ? "met" : "missed") }')
    read -r k mk b mb ratio floor met <<<"$row"
    if [ "$met" = missed ]; then missed=$((missed + 1)); fi
    printf '%-9s %8s %8s %8s %8s %7s %7s %7s  %s\n' "${names[$index]}" "$k" "($mk)" "$b" "($mb)" "$ratio" "≤ ${targets[$index]}" "$floor" "$mark" | sed 's/≤ /≤/'
    [ -z "${RESULTS:-}" ] || printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "${names[$index]}" "$k" "$b" "$ratio" "${targets[$index]}" "$floor" "$is_same" >>"$RESULTS"
done
say "${dim}ratio: bypath / tmpfs. floor: the share of tmpfs's time that is the program's own work (user time), which no file system can save.${off}"

kill "$holder" 2>/dev/null
wait "$holder" 2>/dev/null
holder=
if "$bypath" check "$image" >"$work/out/check" 2>&1; then
    say "the image checks clean afterwards"
else
    cat "$work/out/check"
    say "${bold}the image is DAMAGED after the run${off}"
    failed=$((failed + 1))
fi
if [ "$failed" -gt 0 ]; then
    say "${bold}$failed results differ${off}"
    exit 1
fi
say "all results are the same on both sides; $((${#names[@]} - missed)) of ${#names[@]} time targets met"
