#!/bin/bash
# own
# seconds: 7200
# needs: vim git python3
# A day with editors on a cached directory, inside the session and outside of it, on the same files: no line of either side is
# lost, none comes twice into a log, no name is left over, and git's repository is whole. Method: each save adds a line of its own;
# the other side appends or saves at once, or waits until it sees that; meanwhile both sides append to a log all the time. In the
# end each line is in the file, or in its copy NAME.bypath-theirs. ROUNDS=n (40), in sessions of 12; SEED=n
. "$(dirname "$0")/own.sh"
[ "$(stat -f -c %T .)" = tmpfs ] || { echo 'skip: not on tmpfs' && exit 0; }
export ROUNDS=${ROUNDS:-40} SEED=${SEED:-$RANDOM} work
low=$PWD/low at=$PWD/at image=$PWD/c.img
mkdir -p low at
export GIT_CONFIG_GLOBAL=$PWD/gitconfig
git config --global user.name n && git config --global user.email e@e && git config --global init.defaultBranch main
# What editors do: save EDITOR FILE LINE.
cat >save <<'S'
set -e
file=$2 line=$3
case $1 in
vim) vim -u NONE -i NONE -n -es -c 'set backupcopy=no' -c "\$put ='$line'" -c wq "$file" ;;
vim-in-place) vim -u NONE -i NONE -n -es -c 'set backupcopy=yes' -c "\$put ='$line'" -c wq "$file" ;;
sed) sed -i "\$a $line" "$file" ;;
code | code-atomic) python3 - "$@" <<'P' ;;
import os, sys
how, name, line = sys.argv[1:4]
with open(name, "rb") as file:
    text = file.read() + line.encode() + b"\n"
new = "." + name + ".new" if how == "code-atomic" else name
with open(new, "wb") as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
if new != name:
    os.rename(new, name)
P
rsync)
    src=$(mktemp "$work/src.XXXXXX")
    { cat "$file" && echo "$line"; } >"$src"
    rsync --inplace --no-whole-file "$src" "$file"
    rm "$src"
    ;;
append) echo "$line" >>"$file" ;;
esac
S
# Of one session: it saves, and has the outside do so.
cat >inside <<'S'
cd "$1"
first=$2 last=$3
RANDOM=$((SEED + first))
editors=(vim vim-in-place sed code code-atomic append)
command -v rsync >/dev/null && editors+=(rsync)
any() { editor=${editors[RANDOM % ${#editors[@]}]}; }
# Until the other side's line is here: it may stand in the copy.
seen() {
    for _ in $(seq 600); do
        cat "$1" "$1".bypath-theirs* 2>/dev/null | grep -qxF "$2" && return
        sleep 0.05
    done
    echo "round $n, $what: what the other side wrote into $1 is not seen after 30 s: $2"
    # No more of them: the rest would wait as long.
    [ $((missed += 1)) -lt 3 ] || { touch "$work/stop" && exit 1; }
}
save() { # EDITOR FILE LINE
    bash "$work/save" "$@" || echo "round $n, $what: $* fails: $?"
    echo "$3" >>"$work/lines.$2"
}
( i=0; while [ ! -e "$work/stop" ]; do echo "inside $first $((i += 1))" >>log && echo "inside $first $i" >>"$work/lines.log"; sleep 0.01; done ) &
writer=$!
for n in $(seq "$first" "$last"); do
    file=f$((n % 3)) how=$((RANDOM % 4))
    any; ours=$editor
    any; theirs=$editor
    what="$ours here, $theirs there, way $how"
    # No quicker than a person: what the round before has left to be written is on its way, or below.
    sleep 0.$((RANDOM % 4))
    case $how in
    0) # Saved, synced, then saved outside.
        save "$ours" $file "inside $n $ours"
        sync $file || echo "round $n, $what: sync fails"
        outside "bash $work/save $theirs $file 'outside $n $theirs'"
        ;;
    1) # Outside knows nothing of it yet.
        save "$ours" $file "inside $n $ours"
        outside "bash $work/save $theirs $file 'outside $n $theirs'"
        ;;
    2) # Outside first: the session sees that, and goes on.
        outside "bash $work/save $theirs $file 'outside $n $theirs'"
        seen $file "outside $n $theirs"
        save "$ours" $file "inside $n $ours"
        ;;
    3) # Appended outside while it is saved and its mode changed here.
        save "$ours" $file "inside $n $ours"
        chmod $((600 + RANDOM % 2 * 44)) $file
        theirs=append
        outside "bash $work/save append $file 'outside $n append'"
        ;;
    esac
    echo "outside $n $theirs" >>"$work/lines.$file"
    seen $file "outside $n $theirs"
    # git, in turns: who comes next sees the commit of who was before.
    if [ $((n % 4)) = 0 ]; then
        what=git
        (cd repo && echo "inside $n" >>text && git stash -q && git stash pop -q && git commit -qam "inside $n" && git checkout -q -b "branch-$n" && git checkout -q main) 2>&1
        sync .
        outside "cd repo && git status --porcelain && echo outside $n >>text && git commit -qam 'outside $n' && git checkout -q branch-$n && git checkout -q main"
        for _ in $(seq 600); do
            [ "$(git -C repo log -1 --format=%s 2>&1)" = "outside $n" ] && [ -z "$(git -C repo status --porcelain 2>&1)" ] && break
            sleep 0.05
        done
        [ "$(git -C repo log -1 --format=%s)" = "outside $n" ] || echo "round $n: the commit outside is not seen: $(git -C repo log -1 --format=%s 2>&1)"
        echo "$n" >>"$work/commits"
    fi
done
touch "$work/stop"
wait $writer
rm "$work/stop"
S
(cd low && touch log f0 f1 f2 && mkdir repo && cd repo && git init -q && echo 0 >text && git add text && git commit -qm 0) || fail git
for file in f0 f1 f2; do echo "first of $file" | tee "low/$file" >"lines.$file"; done
outside_in "$low"
(
    i=0
    while [ ! -e end ]; do
        echo "outside $((i += 1))" >>low/log && echo "outside $i" >>lines.log.outside
        sleep 0.01
    done
) &
logger=$!
for first in $(seq 1 12 "$ROUNDS"); do
    last=$((first + 11 < ROUNDS ? first + 11 : ROUNDS))
    timeout -k 5 900 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:128M" -- bash "$work/inside" "$at" "$first" "$last" >said 2>err
    code=$?
    [ $code = 0 ] && [ ! -s said ] || { echo "SEED=$SEED, rounds $first to $last: exit code $code: $(head -c 2000 said) $(head -c 500 err)" && failed=1; }
done
touch end
wait $logger
kill $shell
cat lines.log.outside >>lines.log
wait_until eval '[ ! -e low/.bypath-cache ]' || fail 'the marker stays'
# lost FILE: lines that are neither in it nor in its copies.
lost() { cat "low/$1" "low/$1".bypath-theirs* 2>/dev/null | sort -u | comm -13 - <(sort -u "lines.$1"); }
for file in f0 f1 f2 log; do
    gone=$(lost $file)
    [ -z "$gone" ] || { echo "SEED=$SEED: lost of $file: $(wc -l <<<"$gone") of $(wc -l <"lines.$file"): $(head -5 <<<"$gone" | tr '\n' ';')" && failed=1; }
done
twice=$(sort low/log | uniq -d)
[ -z "$twice" ] || { echo "twice in the log: $(wc -l <<<"$twice"): $(head -3 <<<"$twice")" && failed=1; }
strange=$(cd low && ls -A | grep -vE '^(f[012]|log)(\.bypath-theirs(\.[0-9]+)?)?$|^repo$')
same 'nothing else is there' "$strange" ''
same 'names of the repository' "$(cd low/repo && ls -A && find . -name '*bypath*')" $'.git\ntext'
same 'the repository is whole' "$(git -C low/repo fsck 2>&1 | grep -v '^dangling')" ''
for n in $(cat commits); do
    [ "$(git -C low/repo log --format=%s | grep -cxE "(inside|outside) $n")" = 2 ] || { echo "commits of round $n are lost" && failed=1; }
done
timeout 60 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image" -- bash -c 'cd "$1" && ls -A && cat f0 f1 f2 log' bash "$at" >here 2>err
same 'the session shows what is there' "$(md5sum <here)" "$(cd low && { ls -A | grep -v '^\.bypath-cache$' && cat f0 f1 f2 log; } | md5sum)"
"$bypath" check "$image" >said || { cat said && failed=1; }
echo "figure: $ROUNDS rounds, $(wc -l <lines.log) lines of the log, $(ls low | grep -c bypath-theirs) files kept twice"
exit $failed
