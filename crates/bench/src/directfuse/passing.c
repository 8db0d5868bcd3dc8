/*
 * The file system that `bypath bench directfuse` measures: a directory passed
 * through, as a program (libfuse's daemon) and as a library (a plugin) from this
 * one file, so that all ways lead to the same operations. It adds up the time that
 * the operations themselves take; the file `dummy` answers reads and writes at once.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <fuse3/fuse.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define DUMMY UINT64_MAX
#define DUMMY_BYTES (1L << 30)

static int root = -1;
static atomic_long spent;

static const char *in(const char *path) { return path[1] ? path + 1 : "."; }
static int result(long done) { return done < 0 ? -errno : (int)done; }
static int is_dummy(const char *path) { return path && strcmp(path, "/dummy") == 0; }

static long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static int counted(long begun, long done)
{
    int value = result(done);
    atomic_fetch_add_explicit(&spent, now() - begun, memory_order_relaxed);
    return value;
}

/* In a plugin descriptors are the program's: ours go where it names none. */
static int aside(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 500);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static void *passing_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
    (void)conn;
    cfg->nullpath_ok = 1;
    return NULL;
}

static int passing_getattr(const char *path, struct stat *out, struct fuse_file_info *fi)
{
    if (is_dummy(path) || (!path && fi->fh == DUMMY)) {
        memset(out, 0, sizeof *out);
        out->st_mode = S_IFREG | 0666;
        out->st_nlink = 1;
        out->st_size = DUMMY_BYTES;
        return 0;
    }
    return result(path ? fstatat(root, in(path), out, AT_SYMLINK_NOFOLLOW) : fstat((int)fi->fh, out));
}

static int passing_unlink(const char *path) { return result(unlinkat(root, in(path), 0)); }

static int passing_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    if (fi)
        return result(ftruncate((int)fi->fh, size));
    int fd = openat(root, in(path), O_WRONLY | O_CLOEXEC);
    int done = fd < 0 ? -errno : result(ftruncate(fd, size));
    if (fd >= 0)
        close(fd);
    return done;
}

static int passing_open(const char *path, struct fuse_file_info *fi)
{
    if (is_dummy(path)) {
        fi->fh = DUMMY;
        fi->direct_io = 1;
        return 0;
    }
    int fd = aside(openat(root, in(path), fi->flags | O_CLOEXEC));
    fi->fh = (uint64_t)fd;
    return fd < 0 ? -errno : 0;
}

static int passing_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    long begun = now();
    int fd = openat(root, in(path), fi->flags | O_CLOEXEC, mode);
    int done = counted(begun, fd);
    fi->fh = (uint64_t)aside(fd);
    return done < 0 ? done : 0;
}

static int passing_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    return fi->fh == DUMMY ? 0 : counted(now(), close((int)fi->fh));
}

static int passing_read(const char *path, char *out, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)path;
    if (fi->fh == DUMMY)
        return (int)size;
    long begun = now();
    return counted(begun, pread((int)fi->fh, out, size, offset));
}

static int passing_write(const char *path, const char *from, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)path;
    if (fi->fh == DUMMY)
        return (int)size;
    long begun = now();
    return counted(begun, pwrite((int)fi->fh, from, size, offset));
}

/* What all this has taken: nanoseconds in operations, context switches of the process. */
static int passing_getxattr(const char *path, const char *name, char *value, size_t size)
{
    (void)path;
    if (strcmp(name, "user.spent"))
        return -ENODATA;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    char text[64];
    int len = snprintf(text, sizeof text, "%ld %ld", atomic_load(&spent), used.ru_nvcsw);
    if (size == 0)
        return len;
    if ((size_t)len > size)
        return -ERANGE;
    memcpy(value, text, (size_t)len);
    return len;
}

static const struct fuse_operations OPERATIONS = {
    .init = passing_init, .getattr = passing_getattr, .unlink = passing_unlink, .truncate = passing_truncate,
    .open = passing_open, .create = passing_create, .release = passing_release, .read = passing_read,
    .write = passing_write, .getxattr = passing_getxattr,
};

static int enter(const char *path)
{
    root = aside(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return root;
}

#ifdef PLUGIN
const struct fuse_operations *bypath_plugin(int argc, char **argv, void **private_data)
{
    (void)private_data;
    return argc == 2 && enter(argv[1]) >= 0 ? &OPERATIONS : NULL;
}
#else
/* passing DIR POINT [OPTION...]; on processor PASSING_ON, if that is set. */
int main(int argc, char **argv)
{
    const char *on = getenv("PASSING_ON");
    if (on) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(atoi(on), &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0) {
            perror("passing: PASSING_ON");
            return 1;
        }
    }
    if (argc < 3 || enter(argv[1]) < 0) {
        perror("passing");
        return 1;
    }
    return fuse_main(argc - 1, argv + 1, &OPERATIONS, NULL);
}
#endif
