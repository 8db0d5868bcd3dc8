// Flags of mmap that are not known, and remap_file_pages, as the kernel takes them.
// ways: short both patched kernel host cached
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    static const int flags[] = {MAP_SHARED_VALIDATE, MAP_SHARED_VALIDATE | MAP_SYNC, MAP_SHARED_VALIDATE | 1 << 7, MAP_SHARED | MAP_SYNC,
        MAP_PRIVATE | MAP_SYNC, MAP_SHARED | 1 << 25, MAP_SHARED_VALIDATE | 1 << 25, MAP_SHARED | MAP_HUGETLB, 0, MAP_SHARED | MAP_GROWSDOWN,
        MAP_PRIVATE | MAP_GROWSDOWN, MAP_SHARED | MAP_POPULATE | MAP_NONBLOCK, MAP_SHARED_VALIDATE | MAP_POPULATE, MAP_SHARED | MAP_FIXED_NOREPLACE};
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    ftruncate(fd, 4 * 4096);
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        errno = 0;
        void *at = mmap(0, 8192, PROT_READ | PROT_WRITE, flags[i], fd, 0);
        printf("%x: %s\n", flags[i], at == MAP_FAILED ? strerrorname_np(errno) : "ok");
        if (at != MAP_FAILED) munmap(at, 8192);
    }
    for (int page = 0; page < 4; page++) pwrite(fd, &"abcd"[page], 1, page * 4096);
    char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("%c%c\n", at[0], at[4096]);
    printf("remap %d\n", remap_file_pages(at, 4096, 0, 3, 0));
    printf("%c%c\n", at[0], at[4096]);
    printf("with rights %d\n", remap_file_pages(at, 4096, PROT_READ, 0, 0));
    at[0] = 'x';
    char byte;
    pread(fd, &byte, 1, 3 * 4096);
    printf("%c\n", byte);
    printf("private %d\n", remap_file_pages(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0), 4096, 0, 1, 0));
    return 0;
}
