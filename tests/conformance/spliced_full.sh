#!/bin/bash
# splice into a file of an image that is full: the bytes that do not fit stay in the pipe, as on a full tmpfs.
# own
set -u
. "$(dirname "$0")/own.sh"
an_image 16M
mkdir k && mount -t tmpfs -o size=16M full k || fail "no tmpfs"
cc -O1 -x c -o spliced - <<'C' || fail cc
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>
static char bytes[65536], rest[65536];
int main(int c, char **v) {
    int pipes[2], fill, to, room = 8192;
    if (chdir(v[1]) || pipe(pipes)) return perror(v[1]), 1;
    for (int i = 0; i < 65536; i++) bytes[i] = 'a' + i % 23;
    to = open("to", O_RDWR | O_CREAT, 0644);
    // Room for two pages is there; the rest of the file system is full.
    if (pwrite(to, bytes, room, 0) != room) perror("pwrite");
    fill = open("fill", O_WRONLY | O_CREAT, 0644);
    for (int size = sizeof bytes; size; size /= 2)
        while (write(fill, bytes, size) > 0) {}
    write(pipes[1], bytes, 20000);
    long moved = splice(pipes[0], 0, to, 0, 20000, 0);
    printf("splice = %ld\n", moved);
    for (int i = 0; i < 2; i++) {
        long more = splice(pipes[0], 0, to, 0, 20000, 0);
        printf("again = %ld %s\n", more, more < 0 ? strerrorname_np(errno) : "");
    }
    long have = read(pipes[0], rest, sizeof rest);
    printf("left %ld, %s\n", have, have == 20000 - moved && memcmp(rest, bytes + moved, have) == 0 ? "the right ones" : "other bytes");
    // What was read from a file outside and not written is read again.
    int from = open("/proc/self/exe", O_RDONLY);
    long sent = sendfile(to, from, 0, 5000);
    printf("sendfile = %ld, position %ld\n", sent, (long)lseek(from, 0, SEEK_CUR));
    unlink("fill"), close(fill);
    return 0;
}
C
./spliced "$PWD/k" >kernel 2>&1
umount k
in_session ./spliced "$work/m" >ours 2>&1
diff kernel ours || fail "a full image and a full tmpfs differ"
"$bypath" check image >check || { cat check && fail check; }
exit 0
