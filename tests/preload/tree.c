/* Tree walks and patterns. */
#include "t.h"
#include <ftw.h>
#include <glob.h>

static char lines[20000][160];
static int count, action_at = -1, action, removing;

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static void flush_lines(const char *title) {
    qsort(lines, count, sizeof *lines, by_text);
    say("-- %s: %d", title, count);
    for (int i = 0; i < count && i < 60; i++)
        say("%s", lines[i]);
    count = 0;
}

static int visit(const char *path, const struct stat *st, int flag, struct FTW *at) {
    char here[60] = "";
    if (flag != FTW_NS && !S_ISDIR(st->st_mode))
        snprintf(here, sizeof here, " size %ld", (long)st->st_size);
    snprintf(lines[count++], sizeof *lines, "%s flag %d base %d level %d%s%s", path, flag, at->base, at->level, here,
             access(path + at->base, F_OK) == 0 ? " here" : "");
    if (removing)
        return remove(path);
    return strstr(path, "stop") && action_at ? action : 0;
}
static int visit_old(const char *path, const struct stat *st, int flag) {
    snprintf(lines[count++], sizeof *lines, "%s flag %d %o", path, flag, flag == FTW_NS ? 0 : st->st_mode);
    return 0;
}

static void patterns(const char *pattern, int flags) {
    glob_t g = {0};
    int r = glob(pattern, flags, NULL, &g);
    say("glob %s %x = %d, %ld, flags %x", pattern, flags, r, (long)g.gl_pathc, g.gl_flags);
    for (unsigned i = 0; r == 0 && i < g.gl_pathc; i++)
        say("  %s", g.gl_pathv[i]);
    if (r == 0)
        globfree(&g);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    char name[600];
    mkdir("t", 0755);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "t/d%d", i);
        mkdir(name, 0755);
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "t/d%d/f%d.c", i, k);
            int fd = open(name, O_CREAT | O_WRONLY, 0644);
            ftruncate(fd, i * 10 + k);
            close(fd);
        }
    }
    strcpy(name, "t/deep");
    mkdir(name, 0755);
    for (int i = 0; i < 12; i++) {
        strcat(name, "/level");
        mkdir(name, 0755);
    }
    mkdir("beside", 0755);
    close(open("beside/x.c", O_CREAT | O_WRONLY, 0644));
    symlink("../beside", "t/to-beside");
    symlink("../t", "t/d2/up");
    symlink("nowhere", "t/dangling");
    mkfifo("t/d3/fifo", 0644);
    R(nftw("t", visit, 20, FTW_PHYS));
    flush_lines("PHYS");
    R(nftw("t", visit, 20, 0));
    say("follow: %d", count);
    flush_lines("DEPTH");
    R(nftw("t/", visit, 1, FTW_PHYS | FTW_DEPTH));
    flush_lines("one descriptor, DEPTH");
    R(nftw("t", visit, 3, FTW_PHYS | FTW_CHDIR));
    flush_lines("CHDIR");
    R(nftw("t/deep", visit, 2, FTW_PHYS | FTW_CHDIR | FTW_DEPTH | FTW_MOUNT));
    flush_lines("deep");
    char *cwd = getcwd(NULL, 0);
    snprintf(name, sizeof name, "%s/t/d1", cwd);
    R(nftw(name, visit, 5, FTW_PHYS) + count);
    count = 0;
    R(nftw("t/dangling", visit, 5, 0));
    R(nftw("t/dangling", visit, 5, FTW_PHYS));
    R(nftw("t/d1/f1.c", visit, 5, FTW_PHYS));
    flush_lines("single");
    R(nftw("none", visit, 5, 0));
    R(nftw("", visit, 5, 0));
    R(nftw("t", visit, 5, 64));
    mkdir("t/stop", 0755);
    close(open("t/stop/in", O_CREAT, 0644));
    action = FTW_SKIP_SUBTREE;
    R(nftw("t", visit, 5, FTW_PHYS | FTW_ACTIONRETVAL));
    flush_lines("SKIP_SUBTREE");
    action = 42;
    R(nftw("t", visit, 5, FTW_PHYS));
    count = 0;
    action = FTW_STOP;
    R(nftw("t", visit, 5, FTW_PHYS | FTW_ACTIONRETVAL));
    count = 0;
    action = 0;
    R(ftw("t", visit_old, 5));
    flush_lines("ftw");

    patterns("*", 0);
    patterns("t/*", 0);
    patterns("t/d[12]/*.c", 0);
    patterns("t/d?/f{0,2}.c", GLOB_BRACE);
    patterns("t/*", GLOB_MARK);
    patterns("t/*", GLOB_ONLYDIR);
    patterns("none*", 0);
    patterns("none*", GLOB_NOCHECK);
    patterns("t/dangling", 0);
    patterns("t/.*", 0);
    patterns("t/*/../d0/f*", 0);
    patterns("none/*", GLOB_ERR);
    snprintf(name, sizeof name, "%s/t/d0/*", cwd);
    glob_t g = {0};
    R(glob(name, 0, NULL, &g));
    R(glob("t/d1/*", GLOB_APPEND, NULL, &g));
    say("appended %ld", (long)g.gl_pathc);
    globfree(&g);

    removing = 1;
    R(nftw("t", visit, 4, FTW_PHYS | FTW_DEPTH));
    say("removed %d", count);
    R(access("t", F_OK));
    return 0;
}
