/*
 * Bypath in C: the calls of POSIX, on namespaces of Bypath's own.
 *
 * A namespace holds mounts, descriptors, a working directory and a umask. On
 * images its calls are function calls on shared memory: no system call is made,
 * and the kernel's files and descriptors are not touched; other file systems
 * are asked, past the kernel's FUSE. Arguments, results
 * and error numbers are those of the POSIX call of the same name, with the
 * namespace in front: -1 (or NULL) and errno on failure. Where the C library
 * takes a variable argument (open's mode, fcntl's argument), it is always given
 * here. Descriptors count within their namespace.
 *
 * Threads may call at once, in one namespace or several; mounting, unmounting
 * and closing a namespace exclude other calls in it. Several processes may use
 * an image at once, each through its own namespace. A forked child can't go on
 * with its parent's namespaces (calls fail); it opens its own.
 */
#ifndef BYPATH_H
#define BYPATH_H

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_ns bp_ns;
typedef struct bp_dir bp_dir;

/* ---- namespaces ---- */

/* A namespace without mounts. */
bp_ns *bp_open_namespace(void);
/* Closes its descriptors and mounts. */
int bp_close_namespace(bp_ns *ns);
/*
 * Mounts what `source` names on `point` ("/" for everything). `source` is
 *   the path of an image file;
 *   "host:/dir", a directory of the kernel's: nothing leads out of it;
 *   "fuse:COMMAND ARG... @", a FUSE daemon, unmodified, without the kernel's
 *   FUSE: it is started (by the program bypath, beside libbypath.so or on PATH)
 *   and ended with the mount. @ stands for its mount point. ENOTCONN: it does
 *   not serve; why is said on standard error;
 *   "plugin:LIB.so,ARG,...", a FUSE file system in a library (bypath_plugin.h;
 *   ENOEXEC if it is none);
 *   "mem:", a private file system in memory.
 * The first mount becomes the working directory. `options` is NULL or words
 * separated by commas: "ro", "rw"; for images "domain=process|whole|power" and
 * "atomic=undo|replay"; for directories "sync=none"; for daemons "restart", "timeout=SECONDS", "pages=SIZE", "default_permissions",
 * "carrier=memory|socket", as `bypath run` has them.
 * EINVAL: an option that is unknown (named on standard error), not an image,
 * the cache of a directory, or of another version; EUCLEAN: damaged; EBUSY: in use
 * by processes whose segment can't be reached, or a mount is there already.
 */
int bp_mount(bp_ns *ns, const char *source, const char *point, const char *options);
/*
 * Mounts all that the session of `bypath run` around this process has (images,
 * directories, libraries and FUSE daemons), each where its programs see it, and
 * shares it with them. ENOENT: there is no session; ENOTCONN and others: a
 * mount can't be reached. All or nothing.
 */
int bp_mount_session(bp_ns *ns);
/* EBUSY while descriptors, other mounts or the working directory are inside. */
int bp_umount(bp_ns *ns, const char *point);
/* Needed after setuid(2), setgroups(2) and their kin. */
void bp_credentials_changed(bp_ns *ns);

/* ---- by path ---- */

/*
 * A flag of bp_open and bp_openat that open(2) does not have: each call that
 * writes through this descriptor (and its duplicates) changes the bytes that
 * the file has all or not at all, whoever dies in it, wherever (power failure
 * too, where the medium survives one). Calls: bp_write, bp_pwrite, bp_writev,
 * bp_pwritev, bp_copy_file_range, bp_sendfile. What a call adds behind the end
 * is there with them or not either. A call that fails has changed nothing:
 * EFBIG for more than 32 MiB at once, ENOSPC without room to put as much aside.
 * Readers beside it may see some of the bytes before and some after the change.
 * Regular files in images of format 4: else bp_open is EOPNOTSUPP, or EINVAL.
 * The mount option "atomic=" makes all descriptors so.
 */
#define BP_O_ATOMIC 0x10000000

int bp_open(bp_ns *ns, const char *path, int flags, mode_t mode);
int bp_openat(bp_ns *ns, int dir, const char *path, int flags, mode_t mode);
int bp_creat(bp_ns *ns, const char *path, mode_t mode);
int bp_stat(bp_ns *ns, const char *path, struct stat *out);
int bp_lstat(bp_ns *ns, const char *path, struct stat *out);
int bp_fstatat(bp_ns *ns, int dir, const char *path, struct stat *out, int flags);
int bp_statx(bp_ns *ns, int dir, const char *path, int flags, unsigned int mask, void *out);
int bp_access(bp_ns *ns, const char *path, int mode);
int bp_faccessat(bp_ns *ns, int dir, const char *path, int mode, int flags);
int bp_mkdir(bp_ns *ns, const char *path, mode_t mode);
int bp_mkdirat(bp_ns *ns, int dir, const char *path, mode_t mode);
int bp_mknod(bp_ns *ns, const char *path, mode_t mode, dev_t device);
int bp_mkfifo(bp_ns *ns, const char *path, mode_t mode);
int bp_rmdir(bp_ns *ns, const char *path);
int bp_unlink(bp_ns *ns, const char *path);
int bp_unlinkat(bp_ns *ns, int dir, const char *path, int flags);
int bp_rename(bp_ns *ns, const char *from, const char *to);
int bp_renameat(bp_ns *ns, int from_dir, const char *from, int to_dir, const char *to);
int bp_renameat2(bp_ns *ns, int from_dir, const char *from, int to_dir, const char *to, unsigned int flags);
int bp_link(bp_ns *ns, const char *from, const char *to);
int bp_linkat(bp_ns *ns, int from_dir, const char *from, int to_dir, const char *to, int flags);
int bp_symlink(bp_ns *ns, const char *target, const char *path);
int bp_symlinkat(bp_ns *ns, const char *target, int dir, const char *path);
ssize_t bp_readlink(bp_ns *ns, const char *path, char *out, size_t len);
ssize_t bp_readlinkat(bp_ns *ns, int dir, const char *path, char *out, size_t len);
int bp_chmod(bp_ns *ns, const char *path, mode_t mode);
int bp_fchmodat(bp_ns *ns, int dir, const char *path, mode_t mode, int flags);
int bp_chown(bp_ns *ns, const char *path, uid_t uid, gid_t gid);
int bp_lchown(bp_ns *ns, const char *path, uid_t uid, gid_t gid);
int bp_fchownat(bp_ns *ns, int dir, const char *path, uid_t uid, gid_t gid, int flags);
int bp_utimensat(bp_ns *ns, int dir, const char *path, const struct timespec times[2], int flags);
int bp_truncate(bp_ns *ns, const char *path, off_t len);
int bp_chdir(bp_ns *ns, const char *path);
int bp_fchdir(bp_ns *ns, int fd);
mode_t bp_umask(bp_ns *ns, mode_t mask);
ssize_t bp_getxattr(bp_ns *ns, const char *path, const char *name, void *out, size_t len);
ssize_t bp_lgetxattr(bp_ns *ns, const char *path, const char *name, void *out, size_t len);
int bp_setxattr(bp_ns *ns, const char *path, const char *name, const void *value, size_t len, int flags);
int bp_lsetxattr(bp_ns *ns, const char *path, const char *name, const void *value, size_t len, int flags);
ssize_t bp_listxattr(bp_ns *ns, const char *path, char *out, size_t len);
ssize_t bp_llistxattr(bp_ns *ns, const char *path, char *out, size_t len);
int bp_removexattr(bp_ns *ns, const char *path, const char *name);
int bp_lremovexattr(bp_ns *ns, const char *path, const char *name);
char *bp_getcwd(bp_ns *ns, char *out, size_t len);
int bp_statvfs(bp_ns *ns, const char *path, struct statvfs *out);

/* ---- by descriptor ---- */

int bp_close(bp_ns *ns, int fd);
int bp_close_range(bp_ns *ns, unsigned int first, unsigned int last, unsigned int flags);
ssize_t bp_read(bp_ns *ns, int fd, void *out, size_t len);
ssize_t bp_write(bp_ns *ns, int fd, const void *data, size_t len);
ssize_t bp_pread(bp_ns *ns, int fd, void *out, size_t len, off_t offset);
ssize_t bp_pwrite(bp_ns *ns, int fd, const void *data, size_t len, off_t offset);
ssize_t bp_readv(bp_ns *ns, int fd, const struct iovec *vector, int count);
ssize_t bp_writev(bp_ns *ns, int fd, const struct iovec *vector, int count);
ssize_t bp_preadv(bp_ns *ns, int fd, const struct iovec *vector, int count, off_t offset);
ssize_t bp_pwritev(bp_ns *ns, int fd, const struct iovec *vector, int count, off_t offset);
off_t bp_lseek(bp_ns *ns, int fd, off_t offset, int whence);
int bp_fstat(bp_ns *ns, int fd, struct stat *out);
int bp_fchmod(bp_ns *ns, int fd, mode_t mode);
int bp_fchown(bp_ns *ns, int fd, uid_t uid, gid_t gid);
int bp_futimens(bp_ns *ns, int fd, const struct timespec times[2]);
int bp_ftruncate(bp_ns *ns, int fd, off_t len);
int bp_fallocate(bp_ns *ns, int fd, int mode, off_t offset, off_t len);
int bp_dup(bp_ns *ns, int fd);
int bp_dup3(bp_ns *ns, int fd, int new_fd, int flags);
int bp_fcntl(bp_ns *ns, int fd, int command, unsigned long argument);
int bp_ioctl(bp_ns *ns, int fd, unsigned long request, unsigned long argument);
int bp_flock(bp_ns *ns, int fd, int operation);
int bp_fsync(bp_ns *ns, int fd);
int bp_fdatasync(bp_ns *ns, int fd);
int bp_syncfs(bp_ns *ns, int fd);
ssize_t bp_sendfile(bp_ns *ns, int to, int from, off_t *offset, size_t len);
ssize_t bp_copy_file_range(bp_ns *ns, int from, off_t *from_offset, int to, off_t *to_offset, size_t len, unsigned int flags);
ssize_t bp_getdents64(bp_ns *ns, int fd, void *out, size_t len);
ssize_t bp_fgetxattr(bp_ns *ns, int fd, const char *name, void *out, size_t len);
int bp_fsetxattr(bp_ns *ns, int fd, const char *name, const void *value, size_t len, int flags);
ssize_t bp_flistxattr(bp_ns *ns, int fd, char *out, size_t len);
int bp_fremovexattr(bp_ns *ns, int fd, const char *name);
int bp_dup2(bp_ns *ns, int fd, int new_fd);
int bp_fstatvfs(bp_ns *ns, int fd, struct statvfs *out);
void bp_sync(bp_ns *ns);

/* ---- mappings ---- */

void *bp_mmap(bp_ns *ns, void *address, size_t len, int prot, int flags, int fd, off_t offset);
int bp_munmap(bp_ns *ns, void *address, size_t len);
int bp_msync(bp_ns *ns, void *address, size_t len, int flags);

/* ---- whole files, in one call ---- */

/*
 * Opens a file, reads from `offset` on, and closes it: as many bytes as there
 * are, `len` at most.
 */
ssize_t bp_read_path(bp_ns *ns, const char *path, void *out, size_t len, off_t offset);
/*
 * Reads whole files into one buffer, the bytes of one behind those of the one
 * before: the shortest way to many small ones. lens[i] is how many bytes file i
 * has, or a negated error number: then the others are read all the same. How
 * many files were read, or found not to be readable: `count`, or those before
 * the first for which there is no room any more, which the next call begins
 * with. 0: it is larger than the buffer. Regular files.
 */
ssize_t bp_read_many(bp_ns *ns, const char *const *paths, size_t count, void *out, size_t len, ssize_t *lens);
/*
 * Opens a regular file for reading and says where its bytes lie in memory, and
 * how many there are now. They are read there without being copied until the
 * descriptor is closed; others' writes show, and what somebody cuts off reads as
 * zeroes. *start is NULL if they don't lie in one piece (holes, scattered blocks,
 * no image, no bytes): then there is bp_mmap. Nobody may write there.
 */
int bp_open_view(bp_ns *ns, const char *path, const void **start, size_t *len);

/* ---- whole trees, in one call ---- */

/*
 * Makes a second tree (or file) of one in the same image, which shares its data
 * until one of the two is written to. All of it is there, or nothing: it is made
 * aside and gets its name last. EEXIST if there is something, EINVAL into itself,
 * EXDEV in another mount, EOPNOTSUPP in what is no image of its own.
 */
int bp_clone(bp_ns *ns, const char *from, const char *to);
/*
 * Makes a clone of a directory that nobody can change, as .snap/NAME in it: EROFS for
 * who tries. EEXIST if there is one, EINVAL for what is no name, EOPNOTSUPP in a cache.
 * bp_drop removes it.
 */
int bp_snap(bp_ns *ns, const char *path, const char *name);
/* Removes a tree (or file): its name at once, then all that is in it. */
int bp_drop(bp_ns *ns, const char *path);

/* ---- directory streams ---- */

bp_dir *bp_opendir(bp_ns *ns, const char *path);
bp_dir *bp_fdopendir(bp_ns *ns, int fd);
/* NULL at the end, with errno unchanged. */
struct dirent *bp_readdir(bp_dir *dir);
int bp_closedir(bp_dir *dir);
int bp_dirfd(const bp_dir *dir);
long bp_telldir(const bp_dir *dir);
void bp_seekdir(bp_dir *dir, long position);
void bp_rewinddir(bp_dir *dir);

#ifdef __cplusplus
}
#endif

#endif
