// Transfers of nothing, to and from memory that cannot be there: at the end of a file, of a directory, of no attribute. Only
// what is to be moved can be missed, but an address of the kernel's is refused whatever is asked.
// ways: short both patched host fuse
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>
static void said(const char *what, long r) { printf("%s %ld %s\n", what, r, r < 0 ? strerrorname_np(errno) : ""); }
int main(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "abcd", 4);
    char *gone = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *bads[] = {0, (void *)8, gone, (void *)-8L, (void *)(1UL << 63)};
    for (int i = 0; i < 5; i++) {
        char *b = bads[i];
        printf("address %d\n", i);
        lseek(fd, 0, SEEK_END);
        said("read eof", read(fd, b, 4));
        said("read none", read(fd, b, 0));
        said("pread eof", pread(fd, b, 4, 4));
        said("pread beyond", pread(fd, b, 4, 400));
        said("pread none", pread(fd, b, 0, 0));
        said("pread", pread(fd, b, 4, 0));
        said("pread neg", pread(fd, b, 4, -1));
        said("write none", write(fd, b, 0));
        said("pwrite none", pwrite(fd, b, 0, 2));
        said("write", write(fd, b, 3));
        struct iovec v[2] = {{b, 4}, {b, 4}};
        said("readv eof", readv(fd, v, 2));
        said("preadv eof", preadv(fd, v, 2, 100));
        said("preadv", preadv(fd, v, 2, 0));
        struct iovec z[2] = {{b, 0}, {b, 0}};
        said("readv zero", readv(fd, z, 2));
        said("writev zero", writev(fd, z, 2));
        char good[8];
        struct iovec g[2] = {{good, 8}, {b, 4}};
        said("preadv good", preadv(fd, g, 2, 0));
        struct iovec h[2] = {{good, 2}, {b, 4}};
        said("preadv half", preadv(fd, h, 2, 0));
        said("readv none", readv(fd, (void *)b, 0));
        said("preadv none", preadv(fd, (void *)b, 0, 0));
        said("readv bad", readv(fd, (void *)b, 2));
        int ro = open("f", O_RDONLY), wo = open("f", O_WRONLY);
        said("write ro", write(ro, b, 0));
        said("write ro 4", write(ro, b, 4));
        said("read wo", read(wo, b, 0));
        said("read wo 4", read(wo, b, 4));
        close(ro), close(wo);
        mkdir("d", 0755);
        int d = open("d", O_RDONLY | O_DIRECTORY);
        said("read dir", read(d, b, 4));
        said("read dir 0", read(d, b, 0));
        said("getdents", syscall(SYS_getdents64, d, b, 4096));
        lseek(d, 0, SEEK_SET);
        said("getdents small", syscall(SYS_getdents64, d, b, 0));
        char all[4096];
        while (syscall(SYS_getdents64, d, all, sizeof all) > 0);
        said("getdents end", syscall(SYS_getdents64, d, b, 4096));
        said("getdents end 0", syscall(SYS_getdents64, d, b, 0));
        close(d);
        said("fgetxattr none", fgetxattr(fd, "user.none", b, 10));
        said("flistxattr", flistxattr(fd, b, 10));
        said("flistxattr 0", flistxattr(fd, b, 0));
        said("setxattr 0", fsetxattr(fd, "user.z", b, 0, 0));
        said("fgetxattr z", fgetxattr(fd, "user.z", b, 10));
        said("fgetxattr z0", fgetxattr(fd, "user.z", b, 0));
        fremovexattr(fd, "user.z");
        symlink("target", "l");
        said("readlink 0", readlink("l", b, 0));
        said("readlink", readlink("l", b, 10));
        said("getcwd 0", syscall(SYS_getcwd, b, 0));
        said("getcwd", syscall(SYS_getcwd, b, 100));
        said("sendfile", sendfile(fd, fd, (void *)b, 0));
        unlink("l");
    }
    return 0;
}
