# A library in LD_PRELOAD wraps what we serve as it wraps libc (fakeroot, faketime), wherever the list has us.
# ways: short both patched host
# needs: cc
lib=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$lib"' EXIT
cat >"$lib/w.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
int unlinkat(int fd, const char *path, int flags) {
    int (*next)(int, const char *, int) = dlsym(RTLD_NEXT, "unlinkat");
    fprintf(stderr, "wrapped: %s\n", path);
    return next(fd, path, flags);
}
int fstatat(int fd, const char *path, struct stat *st, int flags) {
    int (*next)(int, const char *, struct stat *, int) = dlsym(RTLD_NEXT, "fstatat");
    int result = next(fd, path, st, flags);
    st->st_uid = 4711;
    return result;
}
C
cc -w -shared -fPIC -o "$lib/w.so" "$lib/w.c"
ours=$LD_PRELOAD
touch a b c d e
LD_PRELOAD=$lib/w.so rm a 2>&1
LD_PRELOAD=$ours:$lib/w.so rm b 2>&1
LD_PRELOAD=$lib/w.so:$ours rm c 2>&1
LD_PRELOAD=$lib/w.so sh -c 'rm d; exec rm e' 2>&1
touch x && LD_PRELOAD="$lib/w.so" find x -printf '%U\n'
ls
# From one program to the next the list does not grow.
cat >l <<'S'
tr '\0' '\n' </proc/self/environ | grep -a ^LD_PRELOAD= | cut -d = -f 2 | tr : '\n' | sort | uniq -d
S
LD_PRELOAD=$lib/w.so sh -c 'exec sh -c "exec sh -c \"exec sh l\""'
