#!/bin/bash
# On a full image what frees space works: holes, attributes, truncation, removal; and nothing is lost by what fails.
# own
set -eu
mkdir m
cat >full.c <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static char bytes[1 << 16];

static void right(int is, const char *what) {
    if (!is) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static long blocks_free(void) {
    struct statfs s;
    right(!statfs(".", &s), "statfs");
    return s.f_bfree;
}

/* How many blocks are missing; a kernel mount hears of the last close a moment later. */
static long lost(long before) {
    long missing = before - blocks_free();
    for (int i = 0; i < 200 && missing > 8; i++) {
        usleep(10000);
        missing = before - blocks_free();
    }
    return missing > 8 ? missing : 0;
}

/* Takes every block that is to be had. */
static void fill(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    right(fd >= 0, path);
    while (write(fd, bytes, sizeof bytes) > 0) {}
    while (write(fd, bytes, 4096) == 4096) {}
    close(fd);
}

/* Files of so many extents of a block each, with an attribute: all that they hold comes back. */
static void scattered(void) {
    for (int extents = 2; extents <= 70; extents++) {
        long before = blocks_free();
        int fd = open("scattered", O_RDWR | O_CREAT, 0644);
        right(!fsetxattr(fd, "user.a", "1", 1, 0), "an attribute");
        for (int i = 0; i < extents; i++) right(pwrite(fd, bytes, 4096, i * 8192L) == 4096, "a block");
        close(fd);
        right(!unlink("scattered"), "unlink");
        long missing = lost(before);
        if (missing) {
            printf("%d extents: %ld blocks are lost\n", extents, missing);
            exit(1);
        }
    }
}

static void holes(void) {
    int fd = open("holes", O_RDWR | O_CREAT, 0644);
    right(fd >= 0, "holes");
    for (int i = 0; i < 400; i++) right(pwrite(fd, bytes, 4096, i * 4096L) == 4096, "a block");
    fill("fill");
    long before = blocks_free();
    for (int i = 0; i < 400; i += 3) {
        right(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * 4096L, 4096), "a hole");
        fill("fill again");
    }
    right(!unlink("fill again"), "unlink");
    if (lost(before + 100)) {
        printf("134 holes gave back %ld blocks\n", blocks_free() - before);
        exit(1);
    }
    char back[4096];
    for (int i = 0; i < 400; i++) {
        right(pread(fd, back, 4096, i * 4096L) == 4096, "read");
        right(back[5] == (i % 3 ? 1 : 0), "what a hole holds");
    }
    close(fd);
}

static void attributes(void) {
    int fd = open("attributes", O_RDWR | O_CREAT, 0644);
    right(!fsetxattr(fd, "user.large", bytes, 30000, 0), "a large attribute");
    for (int i = 0; i < 100; i++) {
        char name[32];
        sprintf(name, "user.%d", i);
        right(!fsetxattr(fd, name, bytes, 100, 0), "an attribute");
    }
    fill("fill");
    for (int i = 0; i < 100; i++) {
        char name[32];
        sprintf(name, "user.%d", i);
        right(i % 2 ? !fremovexattr(fd, name) : !fsetxattr(fd, name, bytes, 90, 0), "a smaller one");
        fill("fill");
    }
    right(!fsetxattr(fd, "user.large", bytes, 29000, XATTR_REPLACE), "a smaller large one");
    right(!fremovexattr(fd, "user.large"), "none");
    close(fd);
}

/* Calls that fail half-way, as many as succeed. */
static void half_way(void) {
    srandom(7);
    int full = 0;
    for (int i = 0; i < 6000; i++) {
        char path[32];
        sprintf(path, "h%ld", random() % 40);
        off_t at = random() % (6 << 20), len = random() % 300000 + 1;
        int how = random() % 10;
        if (how == 0) {
            unlink(path);
            continue;
        }
        int fd = open(path, O_RDWR | O_CREAT, 0644);
        if (fd < 0) continue;
        int mode = how == 5 ? FALLOC_FL_KEEP_SIZE : how == 6 ? FALLOC_FL_ZERO_RANGE : 0;
        if (how < 7 ? fallocate(fd, mode, at, len) : pwrite(fd, bytes, len % sizeof bytes, at) < 0) full += errno == ENOSPC;
        close(fd);
    }
    right(full > 100, "the image was never full");
    for (int i = 0; i < 40; i++) {
        char path[32];
        sprintf(path, "h%d", i);
        unlink(path);
    }
}

int main(void) {
    memset(bytes, 1, sizeof bytes);
    long before = blocks_free();
    scattered();
    holes();
    right(!truncate("fill", 4096) && !truncate("holes", 9) && !unlink("holes") && !unlink("fill"), "what frees all");
    attributes();
    right(!unlink("fill") && !unlink("attributes"), "unlink");
    half_way();
    long missing = lost(before);
    if (missing) printf("%ld blocks are lost\n", missing);
    return missing != 0;
}
C
cc -O1 -w -o full full.c
for way in --no-fuse ''; do
    rm -f i
    "$bypath" mkfs i --size 32M >/dev/null
    "$bypath" run $way --mount "$PWD/i:$PWD/m" -- sh -c 'cd "$0/m" && exec "$0/full"' "$PWD"
    "$bypath" check i >said || { cat said; exit 1; }
    ! grep -q 'removed' said || { cat said; exit 1; }
done
[ -c /dev/fuse ] || exit 0
"$bypath" mkfs k --size 32M >/dev/null
"$bypath" mount k m
(cd m && ../full)
"$bypath" umount m
"$bypath" check k
