#!/bin/bash
# The jobs that Bypath is for, side by side with tmpfs: builds, git, unpacking, package managers, cleaning up.
#
#   demo/jobs.sh [JOB…]           all, or some: make cargo git-clone git-status git-checkout tar npm pip rm
#   FILES=N     files of the tree that git, tar and rm work on   (default 20000)
#   ROUNDS=N    measured rounds; the best counts                 (default 3)
#   SHM=DIR     a tmpfs with room for some copies                (default /dev/shm)
#   RESULTS=F   also write the table to F, as Markdown
#
# Each round runs a job in a fresh directory on both sides, in turns, and compares what it leaves. A job whose
# programs or packages are not there is left out, with the reason. Exit code: 0 when all results were the same.
set -u
export LC_ALL=C TZ=UTC
here=$(cd "$(dirname "$0")" && pwd)
bypath=$(realpath "${BYPATH:-$here/../target/release/bypath}")
files=${FILES:-20000} rounds=${ROUNDS:-3} shm=${SHM:-/dev/shm}
[ -x "$bypath" ] || { echo "jobs: $bypath is not there; run make first" >&2; exit 2; }

work=$(mktemp -d "$shm/bypath-jobs.XXXXXX") || exit 2
holder=
clean_up() {
    if [ -n "$holder" ]; then kill "$holder" 2>/dev/null; wait "$holder" 2>/dev/null; fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
export BYPATH_SEGMENT_DIR=$work
image=$work/i
# Two mount points: one that is not there, and one that is, where programs with system calls of their own find the kernel's mount.
mkdir "$work/k" "$work/out" "$work/kernel" "$work/given"
# What the jobs start from, outside of both sides.
export GIVEN=$work/given HOME=$work/given
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2000-01-01T00:00:00Z' GIT_COMMITTER_DATE='2000-01-01T00:00:00Z'
export CARGO_HOME=${CARGO_HOME:-$(dirname "$(dirname "$(command -v cargo 2>/dev/null || echo /x/x)")")}
export RUSTUP_HOME=${RUSTUP_HOME:-$(dirname "$CARGO_HOME")/.rustup}
left_out=()
skip() { left_out+=("$1: $2"); echo "skip $1: $2: LEFT OUT"; return 1; }
wanted() { [ ${#chosen[@]} -eq 0 ] || [[ " ${chosen[*]} " == *" $1 "* ]]; }
chosen=("$@")

# ---- what the jobs start from ----

# A tree of FILES files of /usr, as an archive and as a repository with two branches that differ in a third of them.
give_tree() {
    mkdir "$GIVEN/tree"
    find /usr/share /usr/include /usr/lib -xdev -type f -size -64k ! -path '*[[:cntrl:]]*' -readable 2>/dev/null | sort | head -n "$files" |
        tar -C / -cf - -T - 2>/dev/null | tar -C "$GIVEN/tree" -xf - || return 1
    tar -C "$GIVEN" -cf "$GIVEN/tree.tar" tree
    (cd "$GIVEN/tree" && find . -type d -empty -delete && git init -q -b main . && git add -A . && git commit -qm 1 &&
        git checkout -q -b other && find . -path ./.git -prune -o -type f -print | sort | awk 'NR % 3 == 0' | tr '\n' '\0' |
        xargs -0 -n 200 sed -i -e '1s/^/x/' && git commit -qam 2 && git checkout -q main) >/dev/null 2>&1 || return 1
    git clone -q --bare "$GIVEN/tree" "$GIVEN/tree.git" && rm -rf "$GIVEN/tree"
}

# 100 small C files with a common header, and a Makefile.
give_c() {
    local i
    mkdir "$GIVEN/c"
    for i in $(seq 100); do
        printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "all.h"\nint f%d(int n) { char b[64]; snprintf(b, sizeof b, "%%d", n); return (int)strlen(b) + %d; }\n' "$i" "$i" >"$GIVEN/c/f$i.c"
        printf 'int f%d(int);\n' "$i" >>"$GIVEN/c/all.h"
    done
    printf '#include "all.h"\nint main(void) { return f1(1) - 2; }\n' >"$GIVEN/c/main.c"
    # shellcheck disable=SC2016
    printf 'O := $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(O)\n\tcc -o all $(O)\n%%.o: %%.c all.h\n\tcc -O1 -c -o $@ $<\n' >"$GIVEN/c/Makefile"
}

# This repository's lowest crates, with what they depend on from the local registry.
give_cargo() {
    mkdir "$GIVEN/rust" && git -C "$here/.." ls-files -z | (cd "$here/.." && tar -cf - --null -T -) | tar -C "$GIVEN/rust" -xf - &&
        (cd "$GIVEN/rust" && cargo build -q --offline --locked -p bypath-format -p bypath-sites && rm -rf target)
}

give_npm() {
    mkdir "$GIVEN/npm" && printf '{"name":"x","version":"1.0.0","dependencies":{"express":"4","webpack":"5"}}\n' >"$GIVEN/npm/package.json" &&
        (cd "$GIVEN/npm" && npm install --silent --no-audit --no-fund --ignore-scripts --cache "$GIVEN/npm-cache" && rm -rf node_modules) >/dev/null 2>&1
}

give_pip() {
    python3 -m venv "$GIVEN/venv" >/dev/null 2>&1 && "$GIVEN/venv/bin/pip" -q download -d "$GIVEN/wheels" django requests >/dev/null 2>&1
}

has() { command -v "$1" >/dev/null 2>&1; }
if wanted tar || wanted rm || wanted git-clone || wanted git-status || wanted git-checkout; then
    echo "Gathering $files files"
    give_tree || { echo "jobs: the tree could not be made" >&2; exit 2; }
fi

"$bypath" mkfs "$image" --size 8G >/dev/null || exit 2
"$bypath" run --no-fuse --mount "$image:$work/point" -- sleep 100000 &
holder=$!

# ---- one job ----

# side k|b POINT LINE NAME: runs a line in the side's directory, with the kernel mount beside it if POINT is there.
side() {
    if [ "$1" = k ]; then
        "$here/measure.sh" "$work/k" "$work/out/$1" "$work/out/times" "$3"
    elif [ "$2" = "$work/kernel" ]; then
        "$bypath" run --mount "$image:$2" -- "$here/measure.sh" "$2" "$work/out/$1" "$work/out/times" "$3"
    else
        "$bypath" run --no-fuse --mount "$image:$2" -- "$here/measure.sh" "$2" "$work/out/$1" "$work/out/times" "$3"
    fi
}

names=() rows=() failed=0
# job NAME POINT PREPARE LINE RESULT: RESULT prints what must be the same on both sides.
job() {
    local name=$1 point=$2 prepare=$3 line=$4 result=$5 round each order wall code same=yes user system
    local -A best=() code_of=()
    for ((round = 0; round <= rounds; round++)); do
        order='k b'
        [ $((round % 2)) -eq 1 ] && order='b k'
        for each in $order; do
            side "$each" "$point" "rm -rf job && mkdir job && cd job && $prepare" || { skip "$name" "it could not be prepared: $(tail -1 "$work/out/$each.err")"; return; }
            side "$each" "$point" "cd job && $line"
            read -r wall user system code <"$work/out/times"
            code_of[$each]=$code
            if [ "$code" -ne 0 ]; then
                echo "  $name, $each: exit code $code: $(tail -1 "$work/out/$each.err")"
            fi
            side "$each" "$point" "cd job && $result"
            mv "$work/out/$each" "$work/out/result.$each"
            [ "$round" -gt 0 ] || continue
            if [ -z "${best[$each]:-}" ] || [ "$wall" -lt "${best[$each]}" ]; then best[$each]=$wall best[u$each]=$user; fi
            best[p$each]=$(awk -v old="${best[p$each]:-1e9}" -v new="$user $system" 'BEGIN { split(new, t, " "); t[1] += t[2]; print t[1] < old ? t[1] : old }')
        done
        if [ "${code_of[k]}" != "${code_of[b]}" ] || ! cmp -s "$work/out/result.k" "$work/out/result.b"; then
            same=no
            echo "DIFFERENT: $name" >&2
            diff "$work/out/result.k" "$work/out/result.b" | head -5 >&2
        fi
    done
    [ "$same" = yes ] || failed=$((failed + 1))
    names+=("$name")
    rows+=("$(awk -v k="${best[k]}" -v b="${best[b]}" -v u="${best[uk]}" -v pk="${best[pk]}" -v pb="${best[pb]}" -v same="$same" 'BEGIN { printf "%.2f|%.2f|%.2f|%.2f|%.2f|%s", k / 1e6, b / 1e6, b / k, pb / (pk + 1e-9), u * 1e6 / k, same }')")
    printf '  %-13s %s\n' "$name" "${rows[-1]//|/  }"
    side k "$point" 'rm -rf job' && side b "$point" 'rm -rf job'
}

point=$work/point
# Names, types, modes, links and contents; not times.
all='find . -printf "%P %y %m %l\n" | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum'

echo "Running the jobs, once to warm up, then $rounds measured rounds: seconds on tmpfs, seconds here, ratio, ratio of processor time, the programs' own share, same results"
if wanted make; then
    if has cc && has make; then
        give_c
        job make "$point" 'cp -r "$GIVEN/c" c' "make -s -j$(nproc) -C c" "$all"
    else skip make 'cc or make is not installed'; fi
fi
if wanted cargo; then
    if ! has cargo; then skip cargo 'cargo is not installed'
    elif [ ! -w /dev/fuse ]; then skip cargo 'cargo makes system calls of its own, and there is no /dev/fuse for the kernel mount that it needs'
    elif ! give_cargo 2>"$work/out/why"; then skip cargo "its dependencies are not in the local registry"
    else
        job cargo "$work/kernel" 'cp -r "$GIVEN/rust" r' 'cd r && cargo build -q --offline --locked -p bypath-format -p bypath-sites' 'ls r/target/debug/deps | sed "s/-[0-9a-f]\{16\}//" | sort'
    fi
fi
if has git; then
    if wanted git-clone; then job git-clone "$point" true 'git clone -q --no-hardlinks "$GIVEN/tree.git" t' 'cd t && git status --porcelain && git ls-files -s | sha256sum && find . -path ./.git -prune -o -print | sort | sha256sum'; fi
    if wanted git-status; then job git-status "$point" 'git clone -q --no-hardlinks "$GIVEN/tree.git" t && echo x >t/new && git -C t status --porcelain' 'git -C t status --porcelain' 'git -C t status --porcelain'; fi
    if wanted git-checkout; then job git-checkout "$point" 'git clone -q --no-hardlinks "$GIVEN/tree.git" t && git -C t branch -q other origin/other' 'git -C t checkout -q other' 'cd t && git status --porcelain && git log --format=%H -1 && find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum'; fi
else skip git 'git is not installed'; fi
if wanted tar; then job tar "$point" true 'tar xf "$GIVEN/tree.tar"' "$all"; fi
if wanted npm; then
    if ! has npm; then skip npm 'npm is not installed'
    elif ! give_npm; then skip npm 'its packages could not be fetched'
    else job npm "$point" 'cp "$GIVEN"/npm/package*.json .' 'npm install --silent --offline --no-audit --no-fund --ignore-scripts --cache "$GIVEN/npm-cache"' "$all"; fi
fi
if wanted pip; then
    if ! has python3; then skip pip 'python3 is not installed'
    elif ! give_pip; then skip pip 'venv or its packages are not at hand'
    else job pip "$point" 'mkdir t' 'PYTHONDONTWRITEBYTECODE=1 "$GIVEN/venv/bin/pip" -q install --no-index --no-compile --find-links "$GIVEN/wheels" --target t django requests' "find t -printf '%P %y %l\n' | sort"; fi
fi
if wanted rm; then job rm "$point" 'tar xf "$GIVEN/tree.tar"' 'rm -rf tree' 'ls -A'; fi

kill "$holder" 2>/dev/null
wait "$holder" 2>/dev/null
holder=
if ! "$bypath" check "$image" >"$work/out/check" 2>&1; then
    cat "$work/out/check"
    failed=$((failed + 1))
fi

# ---- the table ----

if [ -n "${RESULTS:-}" ]; then
    declare -A what=([make]='`make -j`, 100 C files' [cargo]='`cargo build` of two crates (kernel mount beside)' [git-clone]="\`git clone\`, $files files"
        [git-status]='`git status`' [git-checkout]='`git checkout`, a third of the files change' [tar]="\`tar x\`, $files files"
        [npm]='`npm install` of express and webpack, from its cache' [pip]='`pip install` of django and requests, from wheels' [rm]="\`rm -rf\`, $files files")
    {
        echo '| job | tmpfs, s | bypath, s | ratio | of processor time | own share | same results |'
        echo '|---|---|---|---|---|---|---|'
        for i in "${!names[@]}"; do
            IFS='|' read -r k b ratio cpu own same <<<"${rows[$i]}"
            echo "| ${what[${names[$i]}]} | $k | $b | **$ratio** | $cpu | $own | $same |"
        done
        echo
        processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
        echo "Best of $rounds rounds, on ${processor:-an unknown processor} ($(nproc) processors), Linux $(uname -r | cut -d- -f1), $(date -u +%F)."
        for line in "${left_out[@]}"; do echo "Left out: $line."; done
    } >"$RESULTS"
fi
[ "$failed" -eq 0 ] || { echo "$failed results differ"; exit 1; }
echo "all results are the same on both sides, and the image checks clean"
