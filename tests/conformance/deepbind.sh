#!/bin/bash
# ways: short both patched
# needs: cc
# A library opened with RTLD_DEEPBIND, as PHP opens its extensions: its calls and the program's are about the same files, however
# it was linked and opened; what it has in libc's place it keeps.
dir=$(mktemp -d /tmp/bypath-deep.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
cat >"$dir/plugin.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int helped(void);
struct { const char *name; int (*call)(const char *); } table[] = {{"unlink", unlink}, {"rmdir", rmdir}};
void plugin(int fd) {
    struct stat st;
    char text[5] = {0};
    errno = 0;
    int r = open("f", O_RDONLY);
    printf("open %s, ", r < 0 ? strerror(errno) : "done");
    printf("pread %ld %s, ", (long)pread(fd, text, 4, 0), text);
    printf("fstat %d %ld, ", fstat(fd, &st), (long)st.st_size);
    FILE *f = fopen("made", "w");
    printf("fopen %d, ", f != 0);
    if (f) fputs("x\n", f), fclose(f);
    printf("rename %d, ", rename("made", "moved"));
    printf("%s %d, ", table[0].name, table[0].call("moved"));
    printf("helped %d, own access %d\n", helped(), access("/", 77));
    close(r);
}
C
# A library that the plugin needs, and that has a function of libc's name.
cat >"$dir/help.c" <<'C'
#include <sys/stat.h>
int access(const char *path, int how) { return how; }
int helped(void) {
    struct stat st;
    return stat("f", &st) ? -1 : (int)st.st_size;
}
C
cat >"$dir/main.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int c, char **v) {
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    write(fd, "data", 4);
    void *library = dlopen(v[1], atoi(v[2]) | RTLD_DEEPBIND);
    if (!library) return puts(dlerror()), 1;
    printf("%s", dlerror() ? "an error " : "");
    ((void (*)(int))dlsym(library, "plugin"))(fd);
    return 0;
}
C
cc -w -O1 -shared -fPIC -o "$dir/libhelp.so" "$dir/help.c" && cc -w -O1 -o "$dir/main" "$dir/main.c" -ldl || exit 1
for link in -Wl,-z,lazy -Wl,-z,now -Wl,-z,norelro -fno-plt; do
    cc -w -O1 -shared -fPIC "$link" -o "$dir/plugin.so" "$dir/plugin.c" -L"$dir" -lhelp -Wl,-rpath,"$dir" || exit 1
    for how in 1 2; do
        echo "$link $how"
        "$dir/main" "$dir/plugin.so" $how
    done
done
cp "$dir/plugin.so" .
"$dir/main" ./plugin.so 2
