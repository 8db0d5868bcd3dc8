// A file without a name is still a file: what was open stays readable, and its space goes with the last close.
// ways: short both patched kernel host cached cached-fuse fuse
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    char got[8] = {0};
    struct stat st;
    int fd = open("f", O_RDWR | O_CREAT, 0644);
    printf("written %zd\n", write(fd, "content", 7));
    printf("unlink %d\n", unlink("f"));
    printf("read %zd %s\n", pread(fd, got, 7, 0), got);
    int result = fstat(fd, &st);
    printf("fstat %d links %d\n", result, (int)st.st_nlink);
    printf("close %d\n", close(fd));
    return 0;
}
