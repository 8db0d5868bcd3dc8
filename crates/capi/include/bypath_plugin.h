/*
 * A FUSE file system as a library that Bypath calls in process: the library
 * exports `bypath_plugin`, and is mounted by
 *
 *     bypath run --mount plugin:LIB.so,ARG,...:/point -- PROGRAM
 *     bp_mount(ns, "plugin:LIB.so,ARG,...", "/point", NULL)
 *
 * `struct fuse_operations` is libfuse's (high-level interface, version 3), from
 * its own header. The library need not be linked with libfuse: of its functions
 * only `fuse_get_context` is provided here (uid, gid, pid, umask, private_data;
 * `fuse` is NULL).
 *
 * - Paths are those below the mount point, "/" for the mount point itself.
 * - Operations are called by the program's threads, several at once.
 * - Each program has its own copy of the library's state, loaded when it first
 *   uses the mount; a child by fork(2) has its parent's. Programs that must see
 *   each other's changes need a library that keeps them in files.
 * - File calls that an operation makes are the kernel's, never Bypath's.
 *   Descriptors that it keeps are the program's: move them to high numbers
 *   (F_DUPFD_CLOEXEC), where shells and the like put none by name.
 * - As in libfuse: a missing operation is ENOSYS (EOPNOTSUPP for extended
 *   attributes and fallocate); without `create`, `mknod` and `open`; a file that
 *   loses its name while it is open is renamed to .fuse_hidden..., unless `init`
 *   sets `hard_remove`. `use_ino`, `readdir_ino`, `nullpath_ok` and
 *   `set_uid`/`set_gid`/`set_mode` of `struct fuse_config` are followed.
 * - Never called: destroy, lock, flock, bmap, ioctl, poll, read_buf, write_buf,
 *   copy_file_range, lseek. Locks, lseek and copies are done without them.
 */
#ifndef BYPATH_PLUGIN_H
#define BYPATH_PLUGIN_H

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 31
#endif
#include <fuse3/fuse.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Called once in a program for a mount. argv[0] is the library's path, the others are the
 * arguments of the mount; paths among them are absolute, since the program may be
 * in any directory by then. What is stored in `*private_data` is what `init` finds
 * in `fuse_get_context()->private_data`; what `init` returns takes its place, as
 * in libfuse. NULL: the file system can't be used (ENOTCONN).
 */
const struct fuse_operations *bypath_plugin(int argc, char **argv, void **private_data);

#ifdef __cplusplus
}
#endif
#endif
