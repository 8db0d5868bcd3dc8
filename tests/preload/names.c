/* Functions about one name. */
#include "t.h"
#include <limits.h>
#include <sys/ipc.h>

static char *top;

static void real(const char *path) {
    char buffer[PATH_MAX] = "";
    errno = 0;
    char *p = realpath(path, NULL);
    int code = errno;
    const char *tail = p && !strncmp(p, top, strlen(top)) ? p + strlen(top) : p;
    say("realpath %s = %s %s", path, tail ? tail : "null", p ? "" : strerrorname_np(code));
    errno = 0;
    char *q = realpath(path, buffer);
    tail = !strncmp(buffer, top, strlen(top)) ? buffer + strlen(top) : buffer;
    say("  buffer %s %s", q ? "ok" : strerrorname_np(errno), q || errno == ENOENT || errno == EACCES ? tail : "");
    free(p);
}

/* The working directory where its path is longer than PATH_MAX. */
static void deep(void) {
    static char buffer[16384];
    char step[256], *path;
    memset(step, 'y', 200);
    step[200] = 0;
    for (int i = 0; i < 40; i++)
        if (mkdir(step, 0755) || chdir(step)) say("deep %d: %s", i, strerrorname_np(errno));
    P(path = getcwd(NULL, 0));
    say("%zu, %d", path ? strlen(path) - strlen(top) : 0, path && !strncmp(path, top, strlen(top)) && path[strlen(top)] == '/');
    P(getcwd(buffer, sizeof buffer));
    say("same %d", path && !strcmp(buffer, path));
    free(path);
    P(getcwd(buffer, 100));
    P(getcwd(buffer, PATH_MAX));
    P(getcwd(buffer, 8000));
    P(getcwd(NULL, 8000));
    P(getcwd(buffer, sizeof buffer));
    P(path = getcwd(NULL, 10000));
    say("same %d", path && !strcmp(buffer, path));
    free(path);
    for (int i = 0; i < 40; i++)
        if (chdir("..") || rmdir(step)) say("deep %d: %s", i, strerrorname_np(errno));
    P(path = getcwd(NULL, 0));
    say("top %d", path && !strcmp(path, top));
    free(path);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    top = getcwd(NULL, 0);
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    close(open("a/f", O_CREAT, 0644));
    symlink("b", "a/link");
    symlink("../a/./link/..", "a/round");
    symlink("loop2", "loop1");
    symlink("loop1", "loop2");
    symlink("missing", "dangling");
    symlink("a/f/", "tofile");
    char absolute[PATH_MAX];
    snprintf(absolute, sizeof absolute, "%s/a/b", top);
    symlink(absolute, "abs");
    const char *paths[] = {".", "", "a", "a/", "a//b/", "a/b/..", "a/b/../..", "a/f", "a/f/", "a/f/.", "a/f/..", "a/link", "a/link/",
                           "a/round", "a/round/f", "loop1", "dangling", "dangling/", "tofile", "none", "none/x", "a/none", "a/none/..",
                           "a/f/x", "abs", "abs/../f", "/", "//", "/proc/../dev/./null", "/dev/null/", "a/b/../../a/link/../f"};
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++)
        real(paths[i]);
    P(realpath(NULL, NULL));
    char *c = canonicalize_file_name("a/link");
    say("%s", c + strlen(top));
    chdir("a/b");
    real("..");
    real("../f");
    chdir("../..");
    deep();

    char t[60];
    struct stat st;
    strcpy(t, "tmp-XXXXXX");
    int fd = mkstemp(t);
    R(fd);
    fstat(fd, &st);
    say("mode %o size %ld flags %x, %d", st.st_mode, (long)st.st_size, fcntl(fd, F_GETFL) & 0x400, (int)strlen(t));
    R(stat(t, &st));
    close(fd);
    strcpy(t, "XXXXXX.suffix");
    fd = mkstemps(t, 7);
    R(fd);
    say("%s", t + 6);
    close(fd);
    strcpy(t, "o-XXXXXX");
    fd = mkostemp(t, O_CLOEXEC | O_APPEND);
    say("cloexec %d append %x", fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & O_APPEND);
    close(fd);
    strcpy(t, "short-XXXXX");
    R(mkstemp(t));
    strcpy(t, "none/XXXXXX");
    R(mkstemp(t));
    strcpy(t, "XXXXXX");
    R(mkstemps(t, 3));
    strcpy(t, "d-XXXXXX");
    P(mkdtemp(t));
    R(stat(t, &st));
    say("mode %o", st.st_mode);
    strcpy(t, "none/XXXXXX");
    P(mkdtemp(t));
    strcpy(t, "m-XXXXXX");
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    char *m = mktemp(t);
    say("mktemp %d", (int)strlen(m));
    R(access(t, F_OK));
    strcpy(t, "bad");
    say("mktemp '%s'", mktemp(t));
    setenv("TMPDIR", top, 1);
    char *n = tempnam("/none", "pre");
    say("tempnam %d %.4s", !strncmp(n, top, strlen(top)), n + strlen(top));
    unsetenv("TMPDIR");
    n = tempnam("a", "longprefix");
    say("tempnam %.7s", n);
    n = tempnam("none", NULL);
    say("tempnam %.9s", n);

    R(remove("a/f"));
    R(remove("a"));
    R(remove("a/b"));
    R(remove("a/b"));
    R(remove("loop1"));
    R(remove("none/x"));
    R(remove(""));
    key_t k = ftok("a", 5);
    stat("a", &st);
    say("ftok %d", k == (key_t)((st.st_ino & 0xffff) | (st.st_dev & 0xff) << 16 | 5 << 24));
    R(ftok("none", 5));
    return 0;
}
