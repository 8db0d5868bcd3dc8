#!/bin/bash
# own
# needs: gcc
# seconds: 120
# A sanitizer makes calls while it starts, before its own functions stand in front of libc's: the program runs, and its
# report goes into the file that was asked for.
set -u
failed=0
same() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; failed=1; }
}
at=$PWD/m
mkdir m
cat >ok.c <<'C'
#include <stdio.h>
int main(int c, char **v) {
    FILE *file = fopen(v[1], "w");
    return file && fputs("works", file) >= 0 && fclose(file) == 0 ? 0 : 1;
}
C
cat >bad.c <<'C'
#include <stdlib.h>
int main(int c, char **v) {
    volatile int shift = 40;
    char *text = malloc(4);
    text[c + 3] = 1 << shift;
    free(text);
    return 0;
}
C
"$bypath" mkfs i --size 64M >/dev/null || exit 1
any=0
for kind in address 'address -static-libasan' undefined thread leak; do
    # shellcheck disable=SC2086
    gcc -g -fsanitize=$kind -o ok ok.c 2>/dev/null && gcc -g -fsanitize=$kind -o bad bad.c 2>/dev/null || continue
    ASAN_OPTIONS=log_path=$PWD/plain TSAN_OPTIONS=log_path=$PWD/plain ./ok plain.works || continue
    for log in "$PWD/log" "$at/log"; do
        any=1
        options=log_path=$log
        export ASAN_OPTIONS=$options UBSAN_OPTIONS=$options TSAN_OPTIONS=$options LSAN_OPTIONS=$options
        "$bypath" run --no-fuse -m "i:$at" -- sh -c "./ok $at/f && cat $at/f" >out 2>err
        same "$kind, $log: code" $? 0
        same "$kind, $log: it works" "$(cat out)" works
        unset ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS LSAN_OPTIONS
        # A report is written past the C library, so it comes outside only.
        case $kind:$log in
        address*:$PWD/log)
            "$bypath" run --no-fuse -m "i:$at" -- sh -c "ASAN_OPTIONS=$options ./bad; cat $log.*; rm $log.*" >out 2>err
            same "$kind, $log: the report" "$(grep -c 'heap-buffer-overflow on' out)" 1
            ;;
        esac
    done
    # On a standard error that is a file of the mount, the report is there; in children of the program, too.
    case $kind in *static*) continue ;; esac
    for how in './bad' 'sh -c "./bad; :"'; do
        "$bypath" run --no-fuse -m "i:$at" -- sh -c "$how >$at/report 2>&1; cat $at/report" >out 2>err
        ./bad >plain 2>&1
        same "$kind, $how: lines of the report" "$(grep -c . out)" "$(grep -c . plain)"
        [ "$(grep -c 'SUMMARY\|runtime error' out)" -ge 1 ] || [ "$(wc -l <plain)" -eq 0 ] || { echo "$kind, $how: no summary" && failed=1; }
    done
done
[ $any -eq 1 ] || echo 'no sanitizer works here'
exit $failed
