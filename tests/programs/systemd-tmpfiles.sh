#!/bin/sh
# needs: systemd-tmpfiles
# root: yes
# Makes, changes and removes trees by descriptors and /proc/self/fd, as it does in /tmp and /run.
mkdir -p r/etc r/tmp/old/deep r/srv/empty
echo root:x:0:0::/:/bin/sh >r/etc/passwd
echo root:x:0: >r/etc/group
touch -d '40 days ago' r/tmp/old/deep/file r/tmp/old/file
touch r/tmp/new
cat >conf <<'C'
d /run/service 0750 root root -
f /run/service/state 0640 root root - content
w /run/service/state - - - - written
L /run/link - - - - service/state
p /run/pipe 0600 root root -
C /srv/copy - - - - /srv/source
D /srv/wiped 0700 root root -
R /srv/removed
e /tmp 1777 root root 10d
z /srv/source 0700 root root -
Z /srv/source/sub 0711 root root -
C
mkdir -p r/srv/source/sub/deep r/srv/removed/a/b r/srv/wiped/x
echo data >r/srv/source/sub/deep/file
echo data >r/srv/removed/a/b/file
systemd-tmpfiles --root="$PWD/r" --create --remove "$PWD/conf" 2>&1
cat r/run/service/state r/srv/copy/sub/deep/file 2>&1
systemd-tmpfiles --root="$PWD/r" --clean "$PWD/conf" 2>&1
find r -printf '%p %y %m %l\n' | sort
