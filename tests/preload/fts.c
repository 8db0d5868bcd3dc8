/* The BSD tree walk. */
#include "t.h"
#include <fts.h>

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static void walk(const char *title, char *const *roots, int options, int trick) {
    say("-- %s", title);
    errno = 0;
    FTS *f = fts_open(roots, options, by_name);
    if (!f) {
        say("null %s", strerrorname_np(errno));
        return;
    }
    FTSENT *e;
    while ((e = fts_read(f))) {
        say("%s name %s acc %d info %d level %d len %d %d errno %d size %ld parent %s", e->fts_path, e->fts_name, access(e->fts_accpath, F_OK),
            e->fts_info, e->fts_level, e->fts_pathlen, e->fts_namelen, e->fts_errno,
            e->fts_info == FTS_F ? (long)e->fts_statp->st_size : 0L, e->fts_parent ? e->fts_parent->fts_name : "none");
        if (trick == 1 && !strcmp(e->fts_name, "d1") && e->fts_info == FTS_D)
            fts_set(f, e, FTS_SKIP);
        if (trick == 2 && e->fts_info == FTS_SL)
            fts_set(f, e, FTS_FOLLOW);
        if (trick == 3 && e->fts_info == FTS_D)
            for (FTSENT *c = fts_children(f, e->fts_level % 2 ? FTS_NAMEONLY : 0); c; c = c->fts_link)
                say("  child %s info %d", c->fts_name, c->fts_info);
        if (trick == 4 && e->fts_level == 2)
            break;
        if (trick == 5 && e->fts_info == FTS_F && e->fts_number++ == 0)
            fts_set(f, e, FTS_AGAIN);
    }
    say("end %s", strerrorname_np(errno));
    R(fts_close(f));
    R(access("t", F_OK));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    mkdir("t", 0755);
    mkdir("t/d1", 0755);
    mkdir("t/d1/e", 0755);
    mkdir("t/d2", 0755);
    mkdir("t/empty", 0755);
    for (int i = 0; i < 3; i++) {
        char name[30];
        snprintf(name, sizeof name, "t/d%d/file%d", i % 2 + 1, i);
        int fd = open(name, O_CREAT | O_WRONLY, 0644);
        ftruncate(fd, i * 100);
        close(fd);
    }
    symlink("../d2", "t/d1/link");
    symlink("..", "t/d2/up");
    symlink("none", "t/dangling");
    mkfifo("t/fifo", 0600);
    char *roots[] = {"t", NULL}, *two[] = {"t/d2/", "t/d1/e", NULL}, *none[] = {"none", "t/fifo", NULL}, *empty[] = {"", NULL};
    char *dot[] = {".", NULL};
    walk("physical", roots, FTS_PHYSICAL, 0);
    walk("physical, nochdir", roots, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("logical", roots, FTS_LOGICAL, 0);
    walk("two", two, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("two, chdir", two, FTS_PHYSICAL, 0);
    walk("none", none, FTS_PHYSICAL, 0);
    walk("empty", empty, FTS_PHYSICAL, 0);
    walk("invalid", roots, 0x1000, 0);
    walk("dot", dot, FTS_PHYSICAL | FTS_SEEDOT | FTS_XDEV, 0);
    walk("skip", roots, FTS_PHYSICAL, 1);
    walk("follow", roots, FTS_PHYSICAL, 2);
    walk("children", roots, FTS_PHYSICAL, 3);
    walk("children, nochdir", roots, FTS_PHYSICAL | FTS_NOCHDIR, 3);
    walk("left early", roots, FTS_PHYSICAL, 4);
    walk("again", roots, FTS_PHYSICAL, 5);
    walk("comfollow", (char *[]){"t/d1/link", NULL}, FTS_PHYSICAL | FTS_COMFOLLOW, 0);
    return 0;
}
