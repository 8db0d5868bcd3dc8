/* Paths around the longest that the kernel takes (4,095 bytes), at many places in a page: it does not matter where a text lies. */
#include "t.h"
#include <limits.h>
#include <sys/mman.h>

#define PAGE 4096
#define DEPTH_MAX 2200
#define LONGEST 4200
static char chain[LONGEST + 512];  /* "name/name/…/" */
static int ends[DEPTH_MAX], depth; /* where each directory's part of it ends, and how many there are */
static char *room;                 /* three pages to lay texts in */
static int top;

/* Directories inside each other, with names of these lengths in turn. */
static void dig(const int *lengths) {
    int at = 0, dir = dup(top);
    for (depth = 0; at < LONGEST && depth < DEPTH_MAX; depth++) {
        int len = lengths[depth % 6];
        memset(chain + at, 'a' + depth % 23, len);
        chain[at + len] = 0;
        if (mkdirat(dir, chain + at, 0755)) say("mkdir at %d: %s", at, strerrorname_np(errno));
        int next = openat(dir, chain + at, O_RDONLY | O_DIRECTORY);
        close(dir);
        dir = next;
        chain[at += len] = '/';
        ends[depth] = ++at;
    }
    close(dir);
}

static int walk(int levels) {
    int dir = dup(top);
    for (int i = 0, at = 0; i < levels; at = ends[i++]) {
        char name[256];
        int len = ends[i] - at - 1;
        memcpy(name, chain + at, len);
        name[len] = 0;
        int next = openat(dir, name, O_RDONLY | O_DIRECTORY);
        close(dir);
        dir = next;
    }
    return dir;
}

static void fill(void) {
    for (int i = depth - 1; i >= 0; i--) {
        int dir = walk(i), at = i ? ends[i - 1] : 0;
        chain[ends[i] - 1] = 0;
        if (unlinkat(dir, chain + at, AT_REMOVEDIR)) say("rmdir at %d: %s", at, strerrorname_np(errno));
        close(dir);
    }
}

/* What came of all places: so many were right, so many too long, the rest. */
static int right, too_long, other;
static void count(int result) {
    if (result >= 0) right++;
    else if (errno == ENAMETOOLONG) too_long++;
    else other++;
}

static void told(const char *what, int len) {
    say("%s %d: %d %d %d", what, len, right, too_long, other);
    right = too_long = other = 0;
}

/* A file at the end of a path of `len` bytes, asked for, missed, made and removed with its path at many places. */
static void try(const char *before, int len) {
    int lead = strlen(before), levels = 0;
    while (levels < depth - 1 && lead + ends[levels] < len) levels++;
    int part = levels ? ends[levels - 1] : 0, left = len - lead - part;
    char name[256], path[LONGEST + 512];
    memset(name, 'F', left);
    name[left] = 0;
    snprintf(path, sizeof path, "%s%.*s%s", before, part, chain, name);
    int dir = walk(levels);
    int there = openat(dir, name, O_CREAT | O_WRONLY, 0644);
    if (there < 0 || close(there)) say("%d: no file", len);
    for (int what = 0; what < 3; what++) {
        path[len - 1] = what == 0 ? 'F' : 'G';
        for (int offset = 0; offset < PAGE; offset++) {
            /* Texts that begin or end about where a page does, and some others. */
            int end = (offset + len) % PAGE;
            int near = offset > PAGE - 20 || offset < 3 || end > PAGE - 20 || end < 20;
            if (!near && offset % 127) continue;
            char *text = memcpy(room + offset, path, len + 1);
            struct stat st;
            if (what < 2) {
                count(stat(text, &st));
                continue;
            }
            int made = open(text, O_CREAT | O_EXCL | O_WRONLY, 0644);
            count(made);
            if (made >= 0 && (close(made) || unlink(text))) say("%d at %d: %s", len, offset, strerrorname_np(errno));
        }
        told(what == 0 ? "stat" : what == 1 ? "missing" : "create", len);
    }
    if (unlinkat(dir, name, 0)) say("unlink: %s", strerrorname_np(errno));
    close(dir);
}

int main(int argc, char **argv) {
    out = fopen(argv[2], "w");
    top = open(argv[1], O_RDONLY | O_DIRECTORY);
    if (chdir(argv[1])) return 1;
    room = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const int lengths[][6] = {{15, 15, 15, 15, 15, 15}, {14, 15, 3, 1, 9, 2}, {15, 1, 200, 14, 16, 3}, {255, 255, 100, 1, 40, 41}};
    static const int wanted[] = {100, 2046, 2047, 2048, 2049, 3000, 4070, 4080, 4090, 4093, 4094, 4095, 4096, 4097, 4098, 4100, 4120};
    char before[PATH_MAX];
    for (int i = 0; i < 4; i++) {
        dig(lengths[i]);
        for (int k = 0; k < (int)(sizeof wanted / sizeof *wanted); k++) {
            try("", wanted[k]);
            /* Absolute, and with so many slashes that both directories' names are as long. */
            for (int slashes = 300; slashes <= 3900; slashes += 1200) {
                if (slashes + 60 > wanted[k]) break;
                memset(before, '/', slashes);
                memcpy(before, argv[1], strlen(argv[1]));
                before[slashes] = 0;
                try(before, wanted[k]);
            }
        }
        fill();
    }
    return 0;
}
