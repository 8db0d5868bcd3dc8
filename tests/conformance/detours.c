// Paths that come into a directory by a detour: symlinks from elsewhere, `.` and `..` before and behind them, names that are not there.
// ways: short both host cached
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/bypath-detours-XXXXXX", here[4096];

// `%` stands for a directory elsewhere, `@` for this one.
static const char *filled(const char *pattern) {
    static char path[8192];
    char *at = path;
    for (; *pattern; pattern++) {
        const char *part = *pattern == '%' ? top : *pattern == '@' ? here : NULL;
        if (part) at = stpcpy(at, part);
        else *at++ = *pattern;
    }
    *at = 0;
    return path;
}

static const char *const PATHS[] = {
    "%/link/f", "%/link/none", "%/./link/f", "%//link/f", "%/d/../link/f", "%/d/../link/../w/f", "%/none/../link/f",
    "%/link/d/../f", "%/link/d/../../w/f", "%/far/f", "%/far/none/f", "%/far/f/none", "%/dangling", "%/dangling/f",
    "%/loop/f", "%/file/../link/f", "%/d/.hidden/../../link/f", "%/d/.hidden/f", "@/../w/f", "@/./f", "@/d/../f",
    "%/d/f", "%/d/up/w/f", "%/d/up/none", "%/d/up/../none/w/f", "%/file/", "%/link/", "%/link", "/..//../%/link/f",
    "/tmp/../%/link/f", "%/d/../d/../d/../link/d/../f", "/proc/self/root%/link/f", "/proc/self/cwd/f", "/dev/../%/link/f",
};

int main(void) {
    if (!mkdtemp(top) || !getcwd(here, sizeof here)) return 1;
    mkdir("d", 0755);
    close(open("f", O_CREAT | O_WRONLY, 0640));
    close(open("d/f", O_CREAT | O_WRONLY, 0600));
    chdir(top);
    mkdir("d", 0755), mkdir("d/.hidden", 0755);
    close(open("file", O_CREAT | O_WRONLY, 0600));
    symlink(here, "link"), symlink("link", "far"), symlink("loop", "loop"), symlink("nowhere/at/all", "dangling");
    symlink(filled("@/.."), "d/up");
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++) {
            struct stat st;
            const char *path = filled(PATHS[i]);
            int got = stat(path, &st);
            printf("%s: stat %s %o", PATHS[i], got ? strerror(errno) : "ok", got ? 0 : st.st_mode);
            got = lstat(path, &st);
            printf(", lstat %s %o", got ? strerror(errno) : "ok", got ? 0 : st.st_mode);
            printf(", access %s", access(path, R_OK) ? strerror(errno) : "ok");
            int fd = open(path, O_RDONLY);
            printf(", open %s", fd < 0 ? strerror(errno) : "ok");
            if (fd >= 0) close(fd);
            printf(", mkdir %s", mkdir(path, 0700) ? strerror(errno) : (rmdir(path), "ok"));
            // A child by vfork executes it: it is no program, or missing.
            pid_t child = vfork();
            if (child == 0) {
                execl(path, path, NULL);
                _exit(errno & 127);
            }
            int status;
            waitpid(child, &status, 0);
            printf(", exec %s\n", strerror(WEXITSTATUS(status)));
        }
        // The same from this directory.
        chdir(here);
    }
    unlink(filled("%/link")), unlink(filled("%/far")), unlink(filled("%/loop")), unlink(filled("%/dangling"));
    unlink(filled("%/d/up")), unlink(filled("%/file")), rmdir(filled("%/d/.hidden")), rmdir(filled("%/d"));
    return rmdir(top);
}
