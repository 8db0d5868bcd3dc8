#!/bin/bash
# needs: python3 sqlite3 perl /usr/lib/*/libjemalloc.so.2
# Other libraries in LD_PRELOAD beside ours: allocators, and one that wraps open.
for lib in /usr/lib/*/libjemalloc.so.2 /usr/lib/*/libmimalloc.so.2.0 /usr/lib/*/libtcmalloc_minimal.so.4; do
    [ -e "$lib" ] || continue
    name=${lib##*/lib}
    name=${name%%.*}
    echo "== $name"
    LD_PRELOAD=$lib python3 -c "
import os, threading, subprocess
def f(i):
    for j in range(40):
        open(f'$name-{i}-{j}', 'w').write('x' * i * 1000); os.rename(f'$name-{i}-{j}', f'$name.{i}.{j}')
    [os.unlink(f'$name.{i}.{j}') for j in range(39)]
t = [threading.Thread(target=f, args=(i,)) for i in range(4)]; [x.start() for x in t]; [x.join() for x in t]
print(sorted(os.listdir('.')), 'malloc' in open('/proc/self/maps').read())
print(subprocess.check_output('ls | wc -l; grep -c $name /proc/self/maps >/dev/null && echo child too', shell=True))"
    LD_PRELOAD=$lib sqlite3 $name.db 'create table t(x); with recursive c(x) as (select 1 union all select x+1 from c where x<2000) insert into t select x from c; select sum(x) from t'
    LD_PRELOAD=$lib perl -e 'open F, ">", "p" or die; print F "x" x 100000; close F; print -s "p", "\n"; system "cat p | wc -c"; exec "sh", "-c", "wc -c <p"'
    LD_PRELOAD=$lib sort -r /usr/share/common-licenses/GPL-3 -o sorted --parallel=2 -S 40k
    cksum <sorted
done
cat >w.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
static int calls;
FILE *fopen(const char *p, const char *m) { calls++; return ((FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen"))(p, m); }
int mkdir(const char *p, mode_t m) { calls++; return ((int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir"))(p, m); }
__attribute__((destructor)) static void end(void) { if (calls) fprintf(stderr, "%d wrapped\n", calls); }
C
if command -v gcc >/dev/null; then
    gcc -shared -fPIC -o w.so w.c -ldl && cp w.so /tmp/w$$.so && LD_PRELOAD=/tmp/w$$.so mkdir made made2 2>&1
    ls -d made*
    rm -f /tmp/w$$.so w.so
fi
