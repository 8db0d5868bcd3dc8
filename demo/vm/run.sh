#!/bin/bash
# The kernel's file systems, call by call: boots a Debian kernel under QEMU's translator and writes into DIRECTORY
#   trace      every instruction and access of single calls (trace.c says how), and misses of `grep -r`
#   symbols    the kernel's functions
#   kernel     its version
# for `bypath bench densefs --traces DIRECTORY` and `bypath bench figures --traces DIRECTORY`.
#
#   demo/vm/run.sh DIRECTORY        FILES=2000  files of the tree that is searched (0: none)
#                                   FS=tmpfs,ext4,xfs,btrfs,f2fs,ext4-dax,image
#                                   KERNEL=FILE.deb  else `apt-get download` fetches linux-image-amd64's
#                                   RELEASE=target/release  where bypath is, for `grep` on an image
# Needs qemu-system-x86, gcc, busybox-static, kmod, cpio, e2fsprogs, xfsprogs, btrfs-progs, f2fs-tools. 3 GiB of
# memory, two minutes, no /dev/kvm: a processor that is not translated cannot be watched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2; }
PATH=$PATH:/usr/sbin:/sbin
missing=
for program in qemu-system-x86_64 gcc busybox depmod cpio dpkg-deb mke2fs mkfs.xfs mkfs.btrfs mkfs.f2fs; do
    command -v $program >/dev/null || missing="$missing $program"
done
[ "$(uname -m)" = x86_64 ] || missing="$missing x86_64"
[ -z "$missing" ] || { echo "demo/vm/run.sh: the kernel's file systems are LEFT OUT, this machine has no$missing" >&2; exit 3; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
root=$out/root
FS=${FS:-tmpfs,ext4,xfs,btrfs,f2fs,ext4-dax,image} FILES=${FILES:-2000} RELEASE=${RELEASE:-$here/../../target/release}

# The kernel, unpacked once.
if [ ! -e "$out/kernel" ]; then
    deb=${KERNEL:-}
    if [ -z "$deb" ]; then
        package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
        deb=$(ls /var/cache/apt/archives/"$package"_*.deb 2>/dev/null | tail -n 1) || true
        [ -n "$deb" ] || { (cd "$out" && apt-get -qq -o APT::Sandbox::User=root download "$package") && deb=$(ls "$out"/linux-image-*.deb | tail -n 1); }
    fi
    dpkg-deb -x "$deb" "$out/package"
    version=$(ls "$out/package/lib/modules")
    depmod -b "$out/package" "$version"
    echo "$version" >"$out/kernel"
fi
version=$(cat "$out/kernel")

# What runs inside.
rm -rf "$root"
mkdir -p "$root/bin" "$root/modules" "$root/etc"
add() { # A program with its libraries, where they are found here.
    cp -L "$(command -v "$1")" "$root/bin/"
    { ldd "$(command -v "$1")" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r lib; do
        mkdir -p "$root$(dirname "$lib")" && cp -Ln "$lib" "$root$lib"
    done
}
for program in busybox mke2fs mkfs.xfs mkfs.btrfs mkfs.f2fs grep; do add $program; done
cp /etc/mke2fs.conf "$root/etc/"
gcc -O2 -o "$root/bin/calls" "$here/calls.c"
gcc -O2 -shared -fPIC -o "$out/trace.so" "$here/trace.c"
if [ -x "$RELEASE/bypath" ] && [ -e "$RELEASE/libbypath_preload.so" ]; then
    add "$RELEASE/bypath"
    cp "$RELEASE/libbypath_preload.so" "$root/bin/"
    strip "$root/bin/bypath"
else
    echo "demo/vm/run.sh: no bypath in $RELEASE: \`grep\` on an image is LEFT OUT"
fi
for module in nd_e820 nd_pmem ext4 xfs btrfs f2fs crc32c_generic; do
    modprobe -S "$version" -d "$out/package" --show-depends $module | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$root/modules/"
    basename "$file"
done >"$root/modules/list"
cp "$here/init" "$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$out/initrd"
rm -rf "$root"

# The fifth GiB is memory that stays: /dev/pmem0. Without mitigations and pages zeroed in advance, which the papers' kernels had not.
# Its clock goes by instructions: being watched, it is a hundred times as slow, and no more interrupted.
timeout "${TIMEOUT:-900}" qemu-system-x86_64 -accel tcg,thread=single -icount shift=0,sleep=off -cpu max -machine q35 -m 3G -smp 1 -display none -monitor none \
    -nodefaults -no-reboot -serial "file:$out/log" -serial "file:$out/symbols.gz" -plugin "file=$out/trace.so,out=$out/trace" \
    -kernel "$out/package/boot/vmlinuz-$version" -initrd "$out/initrd" \
    -append "console=ttyS0 quiet panic=-1 nokaslr mitigations=off init_on_alloc=0 memmap=1G!4G fs=$FS files=$FILES" </dev/null
grep -a '^vm: ' "$out/log" || true
grep -aq '^vm: end' "$out/log" || { echo "demo/vm/run.sh: the machine did not come to its end: $out/log" >&2; exit 1; }
gzip -dc "$out/symbols.gz" >"$out/symbols"
rm -f "$out/symbols.gz"
