# Sandboxes with a root, a /dev and mounts of their own: what is open goes along, and what is out of sight there is not gone here.
# ways: both kernel
# needs: bwrap
echo input >in
small="--ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc --dev /dev"
bwrap --bind / / --dev /dev --proc /proc cat "$PWD/in"; echo "all $?"
bwrap $small cat <in >o1 2>e1; echo "small $?"; cat o1 e1
bwrap $small bash -c 'echo x; cat; pwd; cd /; exec 3<&0; cat <&3; echo end >&2' <in >o2 2>e2; echo "shell $?"; cat o2 e2
bwrap $small bash -c 'echo more >&7; head -c 3' <in 7>>o1; echo "more $?"; cat o1
bwrap --ro-bind / / --dev /dev --bind "$PWD" "$PWD" --unshare-all bash -c "cd $PWD; echo made >made; cat made; touch /usr/x" 2>&1; echo "unshared $?"; cat made
unshare -m bash -c 'mount -t tmpfs none /mnt; cat; echo to >&1; ls in' <in >o3; echo "unshare $?"; cat o3
# Here nothing has changed.
cat in; ls
