#!/bin/bash
# needs: gcc setpriv
# way: mount
# root: yes
# A set-user-id program inside: another user runs it and becomes its owner, who may read what he may not.
cat >p.c <<'C'
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("%d %d\n", getuid() != 0, geteuid()); FILE *f = fopen("secret", "r"); puts(f ? "read" : "refused"); return 0; }
C
gcc -o p p.c
cp p q
chmod 4755 p
chmod 755 . q
echo s >secret
chmod 600 secret
stat -c %a p q
as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
as ./p
as ./q
as cat secret
echo "exit $?"
as sh -c 'echo x >new'
mkdir open
chmod 1777 open
as sh -c 'echo x >open/theirs; rm -f open/theirs; echo x >open/kept'
stat -c '%u %g' open/kept
as rm -f open/../p
echo "exit $?"
chmod 2775 open
chgrp 65534 open
mkdir open/sub
stat -c '%a %g' open/sub
echo y >>p
as ./p
cp -p p p2
stat -c %a p2
as cp p open/p3 2>/dev/null
chown 65534 p
stat -c %a p
rm p p2 q p.c
