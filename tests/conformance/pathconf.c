// pathconf: which names look at the file, with whose rights, and what they say.
// ways: short both patched kernel host
// mode: 666
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void all(const char *what, const char *path) {
    for (int name = -1; name <= 21; name++) {
        errno = 0;
        long value = pathconf(path, name);
        int error = errno;
        if (name == _PC_LINK_MAX && value > 0) value = 1; // tmpfs's and ours are limits of their own
        printf("%s %d: %ld %s\n", what, name, value, strerror(error));
    }
}

int main(void) {
    mkdir("d", 0755);
    close(open("d/f", O_CREAT | O_RDWR, 0666));
    symlink("loop", "loop");
    all("file", "d/f");
    all("missing", "d/none");
    all("below a file", "d/f/x");
    all("loop", "loop");
    all("empty", "");
    chmod("d", 0);
    if (seteuid(65534)) return 1;
    all("not allowed", "d/f/x");
    if (seteuid(0)) return 1;
    chmod("d", 0755);
    return 0;
}
