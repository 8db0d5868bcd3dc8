#!/bin/sh
# needs: bwrap
# way: kernel
# root: yes
# Sandboxes on directories of the image: bound, read only, an overlay of mounts, a program of the image inside.
mkdir -p root/usr root/data bin
echo data >root/data/f
cp "$(command -v cat)" bin/mycat
base="--ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc --dev /dev"
bwrap $base --bind root/data /data /bin/sh -c 'cat /data/f; echo new >/data/new; ls /data; mkdir /data/dir; mv /data/new /data/dir/x'
cat root/data/dir/x
bwrap $base --ro-bind root/data /data /bin/sh -c 'cat /data/f; echo x >/data/f' 2>&1 | sed 's/.*: //'
bwrap $base --ro-bind bin /tools --bind root/data /data --chdir /data /tools/mycat f
bwrap $base --bind . /w --tmpfs /w/root/data /bin/sh -c 'ls /w/root/data; echo t >/w/root/data/t; ls /w/root/data; ls /w/bin'
ls root/data
bwrap --ro-bind / / --bind "$PWD" "$PWD" --unshare-all /bin/sh -c 'echo unshared >u; cat u; id -u'
bwrap $base --bind root/data /data --unshare-user --uid 1000 --gid 1000 /bin/sh -c 'id -u; stat -c "%u %g" /data/f; echo mine >/data/mine'
stat -c '%u %g %n' root/data/mine
echo in | bwrap $base cat >out
bwrap $base sh -c 'cat; echo end' <out >>root/data/f
cat out root/data/f
rm -rf bin
