/*
 * A directory passed through by libfuse's low-level interface, as faithfully as can
 * be: each node is an O_PATH descriptor, so that what has lost its name is still
 * itself. For the comparison of random calls; see run.sh.
 * BELIEVED says for how many seconds names and attributes may be kept (1).
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <fuse3/fuse_lowlevel.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

struct node {
    struct node *next;
    int fd;
    uint64_t count;
    dev_t dev;
    ino_t ino;
};

static struct node root = {.fd = -1, .count = 2};
static double believed;

static struct node *node(fuse_ino_t id) { return id == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)id; }
static int fd_of(fuse_ino_t id) { return node(id)->fd; }
static char *proc(int fd)
{
    static char text[64];
    snprintf(text, sizeof text, "/proc/self/fd/%d", fd);
    return text;
}
static void answer(fuse_req_t req, long done) { fuse_reply_err(req, done < 0 ? errno : 0); }

/* Whoever asks makes things; the kernel then gives them owner and group. */
static void as_caller(fuse_req_t req)
{
    const struct fuse_ctx *who = fuse_req_ctx(req);
    umask(who->umask);
    setfsgid(who->gid);
    setfsuid(who->uid);
}
static void as_self(void)
{
    int error = errno;
    setfsuid(0);
    setfsgid(0);
    umask(0);
    errno = error;
}

/* The node called `name`, counted; -1 and errno if there is none. */
static int find(fuse_ino_t dir, const char *name, struct fuse_entry_param *out)
{
    memset(out, 0, sizeof *out);
    int fd = openat(fd_of(dir), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &out->attr) < 0)
        return -1;
    struct node *at = &root;
    while (at && (at->ino != out->attr.st_ino || at->dev != out->attr.st_dev))
        at = at->next;
    if (at) {
        close(fd);
    } else if ((at = calloc(1, sizeof *at))) {
        *at = (struct node){.next = root.next, .fd = fd, .dev = out->attr.st_dev, .ino = out->attr.st_ino};
        root.next = at;
    } else {
        return -1;
    }
    at->count++;
    out->ino = (fuse_ino_t)(uintptr_t)at;
    out->attr_timeout = out->entry_timeout = believed;
    return 0;
}
static void entry(fuse_req_t req, fuse_ino_t dir, const char *name, long done)
{
    struct fuse_entry_param out;
    if (done < 0 || find(dir, name, &out) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_entry(req, &out);
}
static void forget(fuse_ino_t id, uint64_t count)
{
    struct node *the = node(id), *before = &root;
    if ((the->count -= count) > 0)
        return;
    while (before->next != the)
        before = before->next;
    before->next = the->next;
    close(the->fd);
    free(the);
}

static void pt_lookup(fuse_req_t req, fuse_ino_t dir, const char *name) { entry(req, dir, name, 0); }
static void pt_forget(fuse_req_t req, fuse_ino_t id, uint64_t count)
{
    forget(id, count);
    fuse_reply_none(req);
}
static void pt_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
    struct stat out;
    (void)fi;
    if (fstat(fd_of(id), &out) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_attr(req, &out, believed);
}
static void pt_setattr(fuse_req_t req, fuse_ino_t id, struct stat *to, int which, struct fuse_file_info *fi)
{
    int fd = fd_of(id);
    long done = 0;
    if (which & FUSE_SET_ATTR_SIZE)
        done = fi ? ftruncate((int)fi->fh, to->st_size) : truncate(proc(fd), to->st_size);
    if (!done && which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        done = fchownat(fd, "", which & FUSE_SET_ATTR_UID ? to->st_uid : (uid_t)-1,
                        which & FUSE_SET_ATTR_GID ? to->st_gid : (gid_t)-1, AT_EMPTY_PATH);
    if (!done && which & FUSE_SET_ATTR_MODE)
        done = chmod(proc(fd), to->st_mode & 07777);
    if (!done && which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
        if (which & FUSE_SET_ATTR_ATIME)
            times[0] = which & FUSE_SET_ATTR_ATIME_NOW ? (struct timespec){.tv_nsec = UTIME_NOW} : to->st_atim;
        if (which & FUSE_SET_ATTR_MTIME)
            times[1] = which & FUSE_SET_ATTR_MTIME_NOW ? (struct timespec){.tv_nsec = UTIME_NOW} : to->st_mtim;
        done = utimensat(fd, "", times, AT_EMPTY_PATH);
    }
    if (done < 0)
        fuse_reply_err(req, errno);
    else
        pt_getattr(req, id, fi);
}
static void pt_readlink(fuse_req_t req, fuse_ino_t id)
{
    char text[4097];
    ssize_t len = readlinkat(fd_of(id), "", text, sizeof text - 1);
    text[len < 0 ? 0 : len] = 0;
    if (len < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_readlink(req, text);
}
static void pt_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t device)
{
    as_caller(req);
    if (S_ISCHR(mode) || S_ISBLK(mode))
        setfsuid(0);
    long done = mknodat(fd_of(dir), name, mode, device);
    as_self();
    entry(req, dir, name, done);
}
static void pt_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode)
{
    as_caller(req);
    long done = mkdirat(fd_of(dir), name, mode);
    as_self();
    entry(req, dir, name, done);
}
static void pt_symlink(fuse_req_t req, const char *text, fuse_ino_t dir, const char *name)
{
    as_caller(req);
    long done = symlinkat(text, fd_of(dir), name);
    as_self();
    entry(req, dir, name, done);
}
static void pt_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t dir, const char *name)
{
    entry(req, dir, name, linkat(fd_of(id), "", fd_of(dir), name, AT_EMPTY_PATH));
}
static void pt_unlink(fuse_req_t req, fuse_ino_t dir, const char *name) { answer(req, unlinkat(fd_of(dir), name, 0)); }
static void pt_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name)
{
    answer(req, unlinkat(fd_of(dir), name, AT_REMOVEDIR));
}
static void pt_rename(fuse_req_t req, fuse_ino_t from, const char *old, fuse_ino_t to, const char *new, unsigned flags)
{
    answer(req, renameat2(fd_of(from), old, fd_of(to), new, flags));
}
static void pt_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
    int fd = open(proc(fd_of(id)), (fi->flags & ~O_NOFOLLOW) | O_CLOEXEC);
    fi->fh = (uint64_t)fd;
    if (fd < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_open(req, fi);
}
static void pt_create(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct fuse_entry_param out;
    as_caller(req);
    int fd = openat(fd_of(dir), name, (fi->flags | O_CREAT) & ~O_NOFOLLOW, mode);
    as_self();
    fi->fh = (uint64_t)fd;
    if (fd < 0 || find(dir, name, &out) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_create(req, &out, fi);
}
static void pt_release(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
    (void)id;
    answer(req, close((int)fi->fh));
}
static void pt_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi)
{
    static char bytes[1 << 20];
    (void)id;
    ssize_t len = pread((int)fi->fh, bytes, size < sizeof bytes ? size : sizeof bytes, offset);
    if (len < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, bytes, (size_t)len);
}
static void pt_write(fuse_req_t req, fuse_ino_t id, const char *from, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)id;
    ssize_t len = pwrite((int)fi->fh, from, size, offset);
    if (len < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_write(req, (size_t)len);
}
static void pt_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t offset, off_t len, struct fuse_file_info *fi)
{
    (void)id;
    answer(req, fallocate((int)fi->fh, mode, offset, len));
}
static void pt_lseek(fuse_req_t req, fuse_ino_t id, off_t offset, int whence, struct fuse_file_info *fi)
{
    (void)id;
    off_t found = lseek((int)fi->fh, offset, whence);
    if (found < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_lseek(req, found);
}
static void pt_fsync(fuse_req_t req, fuse_ino_t id, int data_only, struct fuse_file_info *fi)
{
    (void)id;
    answer(req, data_only ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}
static void pt_fsyncdir(fuse_req_t req, fuse_ino_t id, int data_only, struct fuse_file_info *fi)
{
    (void)id, (void)data_only;
    answer(req, fsync(dirfd((DIR *)(uintptr_t)fi->fh)));
}
static void pt_opendir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
    int fd = openat(fd_of(id), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    fi->fh = (uint64_t)(uintptr_t)dir;
    if (!dir)
        fuse_reply_err(req, errno);
    else
        fuse_reply_open(req, fi);
}
static void pt_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi)
{
    DIR *dir = (DIR *)(uintptr_t)fi->fh;
    char list[65536];
    size_t filled = 0;
    struct dirent *one;
    (void)id;
    seekdir(dir, offset);
    if (offset == 0)
        rewinddir(dir);
    while (errno = 0, one = readdir(dir)) {
        struct stat about = {.st_ino = one->d_ino, .st_mode = DTTOIF(one->d_type)};
        size_t room = (size < sizeof list ? size : sizeof list) - filled;
        size_t len = fuse_add_direntry(req, list + filled, room, one->d_name, &about, one->d_off);
        if (len > room)
            break;
        filled += len;
    }
    fuse_reply_buf(req, list, filled);
}
static void pt_releasedir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
    (void)id;
    answer(req, closedir((DIR *)(uintptr_t)fi->fh));
}
static void pt_statfs(fuse_req_t req, fuse_ino_t id)
{
    struct statvfs out;
    if (fstatvfs(fd_of(id), &out) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_statfs(req, &out);
}
static void value(fuse_req_t req, size_t size, const char *bytes, ssize_t len)
{
    if (len < 0)
        fuse_reply_err(req, errno);
    else if (size)
        fuse_reply_buf(req, bytes, (size_t)len);
    else
        fuse_reply_xattr(req, (size_t)len);
}
static void pt_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t size)
{
    static char bytes[65536];
    value(req, size, bytes, getxattr(proc(fd_of(id)), name, bytes, size < sizeof bytes ? size : sizeof bytes));
}
static void pt_listxattr(fuse_req_t req, fuse_ino_t id, size_t size)
{
    static char bytes[65536];
    value(req, size, bytes, listxattr(proc(fd_of(id)), bytes, size < sizeof bytes ? size : sizeof bytes));
}
static void pt_setxattr(fuse_req_t req, fuse_ino_t id, const char *name, const char *bytes, size_t size, int flags)
{
    answer(req, setxattr(proc(fd_of(id)), name, bytes, size, flags));
}
static void pt_removexattr(fuse_req_t req, fuse_ino_t id, const char *name)
{
    answer(req, removexattr(proc(fd_of(id)), name));
}

static const struct fuse_lowlevel_ops OPERATIONS = {
    .lookup = pt_lookup, .forget = pt_forget, .getattr = pt_getattr, .setattr = pt_setattr, .readlink = pt_readlink,
    .mknod = pt_mknod, .mkdir = pt_mkdir, .symlink = pt_symlink, .link = pt_link, .unlink = pt_unlink, .rmdir = pt_rmdir,
    .rename = pt_rename, .open = pt_open, .create = pt_create, .release = pt_release, .read = pt_read, .write = pt_write,
    .fallocate = pt_fallocate, .lseek = pt_lseek, .fsync = pt_fsync, .fsyncdir = pt_fsyncdir, .opendir = pt_opendir, .readdir = pt_readdir,
    .releasedir = pt_releasedir, .statfs = pt_statfs, .getxattr = pt_getxattr, .listxattr = pt_listxattr,
    .setxattr = pt_setxattr, .removexattr = pt_removexattr,
};

/* passthrough DIR POINT [-o OPTIONS]: in the foreground, one request at a time. */
int main(int argc, char **argv)
{
    struct stat about;
    if (argc < 3 || (root.fd = open(argv[1], O_PATH | O_DIRECTORY)) < 0 || fstat(root.fd, &about) < 0) {
        perror("passthrough");
        return 1;
    }
    root.dev = about.st_dev;
    root.ino = about.st_ino;
    believed = getenv("BELIEVED") ? atof(getenv("BELIEVED")) : 1.0;
    umask(0);
    const char *point = argv[2];
    argv[2] = argv[0];
    struct fuse_args args = FUSE_ARGS_INIT(argc - 2, argv + 2);
    struct fuse_session *session = fuse_session_new(&args, &OPERATIONS, sizeof OPERATIONS, NULL);
    if (!session || fuse_session_mount(session, point) < 0)
        return 1;
    int done = fuse_session_loop(session);
    fuse_session_unmount(session);
    return done != 0;
}
