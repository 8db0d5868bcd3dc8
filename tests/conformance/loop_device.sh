# A file system in a file of ours, mounted through a loop device.
# ways: both kernel
# needs: mkfs.ext4 losetup
[ -e /dev/loop-control ] || { echo 'no loop devices'; exit; }
where=$(mktemp -d -p /var/tmp)
truncate -s 4M fs.img && mkfs.ext4 -q -F fs.img && truncate -s 8M other
if mount -o loop fs.img "$where" 2>err; then
    echo inside >"$where/f" && cat "$where/f" && rm -d "$where/lost+found" && ls "$where"
    umount "$where" && echo unmounted
else
    sed 's/.*: //' err
fi
device=$(losetup -f --show fs.img) && mount "$device" "$where" && cat "$where/f" && umount "$where" && losetup -d "$device" && echo detached
rmdir "$where"
rm -f err fs.img
