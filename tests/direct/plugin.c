/* The example plugin by the C API: what is written is there, in the kernel's directory too. */
#define _GNU_SOURCE
#include "bypath.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MUST(what) do { if (!(what)) { printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); return 1; } } while (0)

int main(int argc, char **argv)
{
    char text[512];
    struct stat about;
    struct dirent *entry;
    int names = 0;
    MUST(argc == 4);
    bp_ns *ns = bp_open_namespace();
    MUST(bp_mount(ns, argv[1], "/v", NULL) == 0);
    MUST(bp_mount(ns, "mem:", "/m", NULL) == 0);
    MUST(bp_mount(ns, "plugin:/nonexistent.so", "/n", NULL) == -1 && errno == ENOENT);
    MUST(bp_mount(ns, argv[3], "/n", NULL) == -1 && errno == ENOEXEC);
    MUST(bp_mkdir(ns, "/v/d", 0750) == 0);
    int fd = bp_open(ns, "/v/d/f", O_CREAT | O_EXCL | O_RDWR, 0640);
    MUST(fd >= 0 && bp_write(ns, fd, "hello", 5) == 5 && bp_pread(ns, fd, text, 64, 1) == 4 && !memcmp(text, argv[2], 4));
    MUST(bp_rename(ns, "/v/d/f", "/v/d/g") == 0 && bp_fstat(ns, fd, &about) == 0 && about.st_size == 5);
    MUST(bp_rename(ns, "/v/d/g", "/m/g") == -1 && errno == EXDEV);
    MUST(bp_unlink(ns, "/v/d/g") == 0 && bp_stat(ns, "/v/d/g", &about) == -1 && errno == ENOENT);
    /* Open without a name. */
    MUST(bp_write(ns, fd, "!", 1) == 1 && bp_pread(ns, fd, text, 64, 5) == 1 && text[0] == '!');
    MUST(bp_fstat(ns, fd, &about) == 0 && about.st_size == 6 && bp_close(ns, fd) == 0);
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "/v/d/%d", i);
        MUST(bp_close(ns, bp_creat(ns, text, 0600)) == 0);
    }
    bp_dir *dir = bp_opendir(ns, "/v/d");
    MUST(dir);
    while ((entry = bp_readdir(dir)))
        if (entry->d_name[0] != '.') {
            /* Removing what was read moves nothing that is still to come. */
            snprintf(text, sizeof text, "/v/d/%s", entry->d_name);
            MUST(bp_unlink(ns, text) == 0);
            names++;
        }
    MUST(bp_closedir(dir) == 0 && names == 300 && bp_rmdir(ns, "/v/d") == 0);
    fd = bp_open(ns, "/v/kept", O_CREAT | O_WRONLY, 0600);
    MUST(fd >= 0 && bp_write(ns, fd, "kept\n", 5) == 5 && bp_close(ns, fd) == 0);
    MUST(bp_close_namespace(ns) == 0);
    puts("good");
    return 0;
}
