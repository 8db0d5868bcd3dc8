# statx says what is a mount's root, and gives mounts numbers; a handle of a file is refused, as nobody could open it.
# own
. "$(dirname "$0")/own.sh"
cat >ask.c <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <linux/stat.h>
int main(int argc, char **argv) {
    unsigned long long first = 0;
    for (int i = 1; i < argc; i++) {
        struct statx told = {0};
        if (statx(AT_FDCWD, argv[i], AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_MNT_ID, &told)) return perror(argv[i]), 1;
        int known = !!(told.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT), root = !!(told.stx_attributes & STATX_ATTR_MOUNT_ROOT);
        if (i == 1) first = told.stx_mnt_id;
        printf("%d%d%d%d ", known, root, !!(told.stx_mask & STATX_MNT_ID), told.stx_mnt_id == first);
    }
    union { struct file_handle handle; char room[200]; } one = {.handle = {.handle_bytes = 128}};
    int mount;
    printf("%s\n", name_to_handle_at(AT_FDCWD, argv[1], &one.handle, &mount, 0) ? strerrorname_np(errno) : "handle");
}
C
cc -w -o ask ask.c || exit 1
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir d m
# Known, root, numbered, same number as the first: the root, a directory, a file, and the one around.
wanted='1111 1011 1011 1010 EOPNOTSUPP'
for mount in i.img:$PWD/m host:$PWD/d:$PWD/m; do
    for kernel in --no-fuse ''; do
        got=$("$bypath" run $kernel --mount "$mount" -- sh -c "mkdir -p m/d; touch m/f; ./ask m m/d m/f .")
        [ "$got" = "$wanted" ] || { echo "$mount $kernel: $got, wanted $wanted" && exit 1; }
    done
done
