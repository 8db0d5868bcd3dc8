# Libraries of LD_PRELOAD that lie in the mount, and what they need; by exec, by shells that fork or vfork, by posix_spawn.
# ways: short both patched host
# needs: cc python3
mkdir lib && cat >w.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
const char *word(void);
int unlinkat(int fd, const char *path, int flags) {
    int (*next)(int, const char *, int) = dlsym(RTLD_NEXT, "unlinkat");
    fprintf(stderr, "%s: %s\n", word(), path);
    return next(fd, path, flags);
}
C
echo 'const char *word(void) { return "wrapped"; }' >word.c
cc -w -shared -fPIC -o lib/libword.so word.c
cc -w -shared -fPIC -o lib/w.so w.c -Llib -lword '-Wl,-rpath,$ORIGIN'
touch 1 2 3 4 5 6 7 8 9
LD_PRELOAD=./lib/w.so rm 1 2>&1
LD_PRELOAD=$PWD/lib/w.so rm 2 2>&1
(exec env LD_PRELOAD=./lib/w.so rm 3) 2>&1
dash -c 'LD_PRELOAD=./lib/w.so rm 4; LD_PRELOAD=./lib/w.so; export LD_PRELOAD; rm 5; sh -c "rm 6; exec rm 7"' 2>&1
/usr/bin/python3 -c "
import os, subprocess
environ = dict(os.environ, LD_PRELOAD='./lib/w.so')
subprocess.run(['rm', '8'], env=environ, close_fds=False)
os.waitpid(os.posix_spawn('/bin/rm', ['rm', '9'], environ), 0)" 2>&1
LD_PRELOAD=./lib/w.so /usr/bin/python3 -c "import os, sys; print([name.endswith('lib/w.so') for name in os.environ['LD_PRELOAD'].split(':')][0], 'BYPATH_PRELOADED' in os.environ, [fd for fd in os.listdir('/proc/self/fd') if 4 < int(fd) < 10])" 2>&1
cp "$(command -v rm)" own-rm && touch x && LD_PRELOAD=./lib/w.so ./own-rm x 2>&1
cd lib && touch y && LD_PRELOAD=./w.so rm y 2>&1; cd ..
LD_PRELOAD=./lib/none.so true 2>/dev/null; echo "$?"
rm -f lib/*.so own-rm
ls . lib
