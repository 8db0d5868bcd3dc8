#!/bin/bash
# A static program reads and changes a directory behind a cache as others do, without a kernel mount.
# own
. "$(dirname "$0")/own.sh"
cat >user.c <<'C'
#include <stdio.h>
int main(int count, char **names) {
    char text[64] = {0};
    FILE *file = fopen(names[1], "r");
    if (!file || !fgets(text, sizeof text, file)) return perror(names[1]), 1;
    printf("%s", text);
    file = fopen(names[2], "w");
    if (!file || fputs("made\n", file) < 0 || fclose(file)) return perror(names[2]), 1;
    return remove(names[3]) ? perror(names[3]), 1 : 0;
}
C
cc -static -o user user.c 2>/dev/null || { echo 'skip: no static C library' && exit 0; }
"$bypath" doctor ./user 2>/dev/null | grep -q mapped || { echo 'skip: the kernel does not hand system calls back' && exit 0; }
mkdir low && echo here >low/f && echo gone >low/g
# The short way sees at once what it has done; the directory below, in the end.
"$bypath" run --no-fuse --mount "host:$PWD/low:$PWD/at,cache=$PWD/c.img:64M" -- sh -c './user at/f at/new at/g && cat at/new && ls at' >got 2>err
same 'in the session' "$? $(cat got err)" $'0 here\nmade\nf\nnew'
same 'below' "$(cat low/new) $(ls low)" $'made f\nnew'
exit $failed
