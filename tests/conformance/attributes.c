// Extended attributes: 3,000 small ones of a file, values of up to 64 KiB, and large ones for each of many files.
// ways: short both patched kernel
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

static char value[65536], back[65536], list[65536];

static int same(const char *path, const char *name, size_t len, int byte) {
    memset(value, byte, len);
    return getxattr(path, name, back, sizeof back) == (ssize_t)len && !memcmp(back, value, len);
}

static int file(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    return fd < 0 ? fd : close(fd);
}

static void small(void) {
    char name[64], text[64];
    int made = 0, shorter = 0, read = 0, removed = 0;
    file("small");
    for (int i = 0; i < 3000; i++) {
        sprintf(name, "trusted.v%d", i);
        made += !setxattr("small", name, text, sprintf(text, "value %d", i), XATTR_CREATE);
    }
    for (int i = 0; i < 3000; i++) {
        sprintf(name, "trusted.v%d", i);
        shorter += !setxattr("small", name, text, sprintf(text, "%d", i), XATTR_REPLACE);
    }
    for (int i = 0; i < 3000; i++) {
        sprintf(name, "trusted.v%d", i);
        int len = sprintf(text, "%d", i);
        read += getxattr("small", name, back, sizeof back) == len && !memcmp(back, text, len);
    }
    ssize_t listed = listxattr("small", list, sizeof list);
    int names = 0;
    for (ssize_t i = 0; i < listed; i++) names += !list[i];
    for (int i = 0; i < 3000; i++) {
        sprintf(name, "trusted.v%d", i);
        removed += !removexattr("small", name);
    }
    printf("made %d, shorter %d, read %d, listed %d, removed %d\n", made, shorter, read, names, removed);
}

static void large(void) {
    int made = 0, replaced = 0, right = 0, removed = 0;
    char path[64];
    for (int i = 0; i < 600; i++) {
        sprintf(path, "f%d", i);
        file(path);
        memset(value, i, 9000);
        made += !setxattr(path, "trusted.large", value, 9000, 0);
    }
    for (int i = 0; i < 600; i++) {
        sprintf(path, "f%d", i);
        right += same(path, "trusted.large", 9000, i);
        memset(value, i + 1, 20000);
        replaced += !setxattr(path, "trusted.large", value, i % 2 ? 5000 : 20000, 0);
        right += same(path, "trusted.large", i % 2 ? 5000 : 20000, i + 1);
    }
    for (int i = 0; i < 600; i++) {
        sprintf(path, "f%d", i);
        removed += !removexattr(path, "trusted.large");
        unlink(path);
    }
    printf("made %d, replaced %d, right %d, removed %d\n", made, replaced, right, removed);
}

int main(void) {
    small();
    large();
    static const int sizes[] = {0, 1, 4000, 4096, 12000, 40000, 65000, 65536};
    file("one");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(value, 7, sizeof value);
        int set = setxattr("one", "trusted.a", value, sizes[i], 0);
        printf("%d bytes: %d, %d\n", sizes[i], set, same("one", "trusted.a", sizes[i], 7));
    }
    errno = 0;
    int set = setxattr("one", "trusted.a", value, 65537, 0);
    printf("65537 bytes: %d %s\n", set, strerror(errno));
    return 0;
}
