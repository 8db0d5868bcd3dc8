/*
 * A directory of the kernel's as a FUSE file system in a library:
 *
 *     cc -shared -fPIC -O2 $(pkg-config --cflags fuse3) -I ../../crates/capi/include -o dirview.so dirview.c
 *     bypath run --mount plugin:dirview.so,DIR:/view -- ls -l /view
 *
 * DIR is absolute: programs use the mount from any directory. With the argument `upper` what is read is in capital letters. It keeps a
 * handle for each open file and its settings in the private data, as file
 * systems do; nothing of libfuse but its header is used.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include "bypath_plugin.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

struct view {
    int root;
    int upper;
    /* The directory itself: there are no *at calls for extended attributes. */
    char path[4096];
};

static struct view *view(void) { return fuse_get_context()->private_data; }
static int result(int done) { return done < 0 ? -errno : 0; }

/*
 * Descriptors are the program's, which may put others in the place of low ones
 * (a shell's `exec 3<file`): ours go where nobody looks for a number by name.
 */
static int aside(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 500);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* Relative to the directory. */
static const char *in(const char *path) { return path[1] ? path + 1 : "."; }

static int whole(const char *path, char *out, size_t room)
{
    return snprintf(out, room, "%s%s", view()->path, path) < (int)room ? 0 : -ENAMETOOLONG;
}

static void *view_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
    (void)conn;
    cfg->use_ino = 1;
    return fuse_get_context()->private_data;
}

static int view_getattr(const char *path, struct stat *out, struct fuse_file_info *fi)
{
    (void)fi;
    return result(fstatat(view()->root, in(path), out, AT_SYMLINK_NOFOLLOW));
}

static int view_readlink(const char *path, char *out, size_t room)
{
    ssize_t len = readlinkat(view()->root, in(path), out, room - 1);
    if (len < 0)
        return -errno;
    out[len] = 0;
    return 0;
}

/* What is made belongs to who asked. */
static int own(const char *path)
{
    struct fuse_context *who = fuse_get_context();
    if (geteuid() == 0)
        return result(fchownat(view()->root, in(path), who->uid, who->gid, AT_SYMLINK_NOFOLLOW));
    return 0;
}

/* The mode has been through the program's umask; this process's is not to take more. */
static int exact(const char *path, mode_t mode) { return result(fchmodat(view()->root, in(path), mode & 07777, 0)); }

static int view_mknod(const char *path, mode_t mode, dev_t device)
{
    if (mknodat(view()->root, in(path), mode, device) < 0)
        return -errno;
    int done = own(path);
    return done ? done : exact(path, mode);
}

static int view_mkdir(const char *path, mode_t mode)
{
    if (mkdirat(view()->root, in(path), mode) < 0)
        return -errno;
    int done = own(path);
    return done ? done : exact(path, mode);
}

static int view_symlink(const char *target, const char *path)
{
    return symlinkat(target, view()->root, in(path)) < 0 ? -errno : own(path);
}

static int view_unlink(const char *path) { return result(unlinkat(view()->root, in(path), 0)); }
static int view_rmdir(const char *path) { return result(unlinkat(view()->root, in(path), AT_REMOVEDIR)); }

static int view_rename(const char *from, const char *to, unsigned int flags)
{
    return result(renameat2(view()->root, in(from), view()->root, in(to), flags));
}

static int view_link(const char *from, const char *to)
{
    return result(linkat(view()->root, in(from), view()->root, in(to), 0));
}

static int view_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    (void)fi;
    return exact(path, mode);
}

static int view_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
    (void)fi;
    return result(fchownat(view()->root, in(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int view_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    if (fi)
        return result(ftruncate((int)fi->fh, size));
    int fd = openat(view()->root, in(path), O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int done = result(ftruncate(fd, size));
    close(fd);
    return done;
}

static int view_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
    (void)fi;
    return result(utimensat(view()->root, in(path), times, AT_SYMLINK_NOFOLLOW));
}

static int view_open(const char *path, struct fuse_file_info *fi)
{
    int fd = aside(openat(view()->root, in(path), fi->flags | O_CLOEXEC));
    if (fd < 0)
        return -errno;
    fi->fh = (uint64_t)fd;
    return 0;
}

static int view_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    int fd = aside(openat(view()->root, in(path), fi->flags | O_CLOEXEC, mode));
    if (fd < 0)
        return -errno;
    int done = own(path);
    if (!done)
        done = result(fchmod(fd, mode & 07777));
    if (done)
        close(fd);
    fi->fh = (uint64_t)fd;
    return done;
}

static int view_read(const char *path, char *out, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)path;
    ssize_t len = pread((int)fi->fh, out, size, offset);
    if (len < 0)
        return -errno;
    for (ssize_t i = 0; view()->upper && i < len; i++)
        out[i] = (char)toupper((unsigned char)out[i]);
    return (int)len;
}

static int view_write(const char *path, const char *from, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)path;
    ssize_t len = pwrite((int)fi->fh, from, size, offset);
    return len < 0 ? -errno : (int)len;
}

static int view_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    return result(close((int)fi->fh));
}

static int view_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
    (void)path;
    return result(data_only ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static int view_fallocate(const char *path, int mode, off_t offset, off_t len, struct fuse_file_info *fi)
{
    (void)path;
    return result(fallocate((int)fi->fh, mode, offset, len));
}

static int view_statfs(const char *path, struct statvfs *out)
{
    (void)path;
    return result(fstatvfs(view()->root, out));
}

static int view_access(const char *path, int want) { return result(faccessat(view()->root, in(path), want, AT_EACCESS)); }

static int view_opendir(const char *path, struct fuse_file_info *fi)
{
    int fd = openat(view()->root, in(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    fi->fh = (uint64_t)(uintptr_t)dir;
    return 0;
}

static int view_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *fi,
                        enum fuse_readdir_flags flags)
{
    (void)path, (void)offset, (void)flags;
    DIR *dir = (DIR *)(uintptr_t)fi->fh;
    struct dirent *entry;
    rewinddir(dir);
    while (errno = 0, entry = readdir(dir)) {
        struct stat about = {.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)};
        if (fill(buffer, entry->d_name, &about, 0, 0))
            break;
    }
    return -errno;
}

static int view_releasedir(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    return result(closedir((DIR *)(uintptr_t)fi->fh));
}

static int view_setxattr(const char *path, const char *name, const char *value, size_t size, int flags)
{
    char at[8192];
    return whole(path, at, sizeof at) ? -ENAMETOOLONG : result(lsetxattr(at, name, value, size, flags));
}

static int view_getxattr(const char *path, const char *name, char *value, size_t size)
{
    char at[8192];
    ssize_t len = whole(path, at, sizeof at) ? (errno = ENAMETOOLONG, -1) : lgetxattr(at, name, value, size);
    return len < 0 ? -errno : (int)len;
}

static int view_listxattr(const char *path, char *list, size_t size)
{
    char at[8192];
    ssize_t len = whole(path, at, sizeof at) ? (errno = ENAMETOOLONG, -1) : llistxattr(at, list, size);
    return len < 0 ? -errno : (int)len;
}

static int view_removexattr(const char *path, const char *name)
{
    char at[8192];
    return whole(path, at, sizeof at) ? -ENAMETOOLONG : result(lremovexattr(at, name));
}

static const struct fuse_operations OPERATIONS = {
    .init = view_init, .getattr = view_getattr, .readlink = view_readlink, .mknod = view_mknod,
    .mkdir = view_mkdir, .unlink = view_unlink, .rmdir = view_rmdir, .symlink = view_symlink,
    .rename = view_rename, .link = view_link, .chmod = view_chmod, .chown = view_chown,
    .truncate = view_truncate, .utimens = view_utimens, .open = view_open, .create = view_create,
    .read = view_read, .write = view_write, .release = view_release, .fsync = view_fsync,
    .fallocate = view_fallocate, .statfs = view_statfs, .access = view_access, .opendir = view_opendir,
    .readdir = view_readdir, .releasedir = view_releasedir, .setxattr = view_setxattr,
    .getxattr = view_getxattr, .listxattr = view_listxattr, .removexattr = view_removexattr,
};

const struct fuse_operations *bypath_plugin(int argc, char **argv, void **private_data)
{
    /* One for each mount: a program may have several of the same library. */
    struct view *the = calloc(1, sizeof *the);
    if (!the || argc < 2 || !realpath(argv[1], the->path)) {
        free(the);
        return NULL;
    }
    the->root = aside(open(the->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    the->upper = argc > 2 && strcmp(argv[2], "upper") == 0;
    *private_data = the;
    return the->root < 0 ? NULL : &OPERATIONS;
}
