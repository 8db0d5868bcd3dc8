# A root directory inside the mount: programs there, what they write, who may, and what is open.
# ways: both kernel
# needs: busybox chroot
mkdir -p r/bin r/lib r/tmp r/deep/er
cp "$(command -v busybox)" r/bin/sh
cp /bin/bash r/bin/bash
for file in $(ldd /bin/bash | grep -o '/[^ ]*' | grep -v bypath); do
    mkdir -p "r/${file%/*}"
    cp "$file" "r/$file"
done
cat >show <<'S'
pwd
echo /*
cd /tmp && echo "from $0" >"$1"
cat ../show ../../../../../show 2>&1 | wc -l
S
cp show r/show
exec 7>open
chroot r /bin/sh /show one
chroot r /bin/bash -c 'echo inside /*; echo bash >/tmp/two; cd /deep/er && echo "$PWD" && cd ../../.. && pwd; echo told >&7'
cd r && chroot . /bin/sh -c 'pwd; ls -l /tmp | wc -l'
cd ..
cat r/tmp/* open
chroot r/show true 2>&1 | sed 's/.*: //'
chroot none true 2>&1 | sed 's/.*: //'
chmod 700 r
setpriv --reuid 65534 --clear-groups chroot r true 2>&1 | sed 's/.*: //'
rm -r r/lib* r/bin
