#!/bin/bash
# Under narrow limits a session works or ends with a message: a stack of 64 KiB (`ulimit -s`), little memory for data (`ulimit -d`).
# own
set -u
. "$(dirname "$0")/own.sh"
an_image 64M
limited() { # LIMITS COMMAND…: how it ended, and the last line that it said
    local limits=$1
    shift
    (
        eval "ulimit $limits" && timeout -s KILL 30 "$@" >out 2>err
        echo "$?"
    )
}
same 'a small stack' "$(limited '-s 64' "$bypath" run --no-fuse -m "image:$work/m" -- sh -c "echo x >$work/m/f && cat $work/m/f")" 0
same 'what it said' "$(cat out)" x
same 'a small stack: check' "$(limited '-s 64' "$bypath" check image)" 0
# Where memory runs out differs by machine and build: what is claimed is that it ends.
for size in 500 1000 2000 3000 4000; do
    for trace in 0 1; do
        code=$(RUST_BACKTRACE=$trace limited "-d $size" "$bypath" run --no-fuse -m "image:$work/m" -- true)
        [ "$code" -lt 128 ] || [ "$code" -eq 134 ] || { echo "-d $size, backtraces $trace: $code, $(tail -1 err)" && failed=1; }
        [ "$code" -eq 0 ] || [ -s err ] || { echo "-d $size, backtraces $trace: $code, and not a word" && failed=1; }
    done
done
"$bypath" check image >check || { cat check && failed=1; }
exit ${failed:-0}
