#!/bin/sh
# needs: gcc python3 python3-config perl
# ignore: \.(so[^/]*|pyc)$|/(abs|origin|none|open)$
# Libraries beside the programs that need them: found by absolute RUNPATH, $ORIGIN, LD_LIBRARY_PATH and without; needed by
# each other, opened, closed and opened again; Python's modules in C, and what they need.
mkdir sub bin
here=$PWD
echo 'int c(void) { static int n; return ++n; }' >c.c
echo 'int c(void); int b(void) { return 10 + c(); }' >b.c
echo 'int b(void); int c(void); int a(void) { return 100 * b() + c(); }' >a.c
printf '#include <stdio.h>\nint a(void), b(void);\nint main(void) { int first = a(); printf("%%d %%d\\n", first, b()); }\n' >main.c
# One without a name of its own, too.
gcc -shared -fPIC -o sub/libc1.so c.c -Wl,-soname,libc1.so
gcc -shared -fPIC -o sub/libb.so.2 b.c -Lsub -lc1 -Wl,-soname,libb.so.2,-rpath,'$ORIGIN'
ln -s libb.so.2 sub/libb.so
gcc -shared -fPIC -o liba.so a.c -Lsub -lb -lc1 -Wl,-rpath,'$ORIGIN/sub'
program() { gcc -o "bin/$1" main.c -L. -la -Lsub -lb -lc1 "$2"; }
program abs "-Wl,-rpath,$here:$here/sub"
program origin '-Wl,-rpath,$ORIGIN/..:$ORIGIN/../sub'
program none -Wl,-s
bin/abs
bin/origin
LD_LIBRARY_PATH=.:$here/sub bin/none
env LD_LIBRARY_PATH="$here:sub" bin/none
bin/none 2>&1 | sed 's/.*: error/error/'
sh -c 'env | grep -c self/fd'
perl -e 'system("bin/abs"); print `bin/origin`; exec "bin/abs"'
echo | xargs bin/origin
cat >open.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *a = dlopen(argv[1], RTLD_NOW), *again = dlopen(argv[1], RTLD_LAZY), *c = dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD);
    if (!a) return puts(dlerror()), 1;
    int (*fa)(void) = dlsym(a, "a"), (*fc)(void) = dlsym(c, "c");
    printf("%d %d, one library: %d\n", fa(), fc(), a == again);
    dlclose(a); dlclose(again); dlclose(c);
    printf("still there: %d\n", dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != 0);
    a = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    fa = dlsym(RTLD_DEFAULT, "a");
    printf("%d\n", fa());
    return puts(dlopen("./missing.so", RTLD_NOW) ? "?" : dlerror()), 0;
}
C
gcc -o open open.c -ldl
./open "$here/liba.so" sub/libc1.so
./open ./liba.so "$here/sub/libc1.so"
cat >load.py <<'P'
import ctypes, os, sys
before = len(os.listdir("/proc/self/fd"))
a = ctypes.CDLL("./liba.so")
print(a.a(), ctypes.CDLL(os.path.abspath("sub/libc1.so")).c(), len(os.listdir("/proc/self/fd")) - before, flush=True)
if os.fork() == 0:
    print(ctypes.CDLL("./sub/libb.so").b(), ctypes.CDLL("./bin/../liba.so").a(), flush=True)
    os._exit(0)
os.wait()
open("broken.so", "w").write("no library")
for name in "broken.so", "none.so":
    try: ctypes.CDLL("./" + name)
    except OSError as error: print(str(error).rsplit(": ", 1)[1])
P
python3 load.py
LD_LIBRARY_PATH=$here:sub python3 -c 'import ctypes; print(ctypes.CDLL("liba.so").a())'
mkdir wheel.libs
echo 'int needed(void) { return 7; }' >n.c
gcc -shared -fPIC -o wheel.libs/libneeded-0a1b.so n.c -Wl,-soname,libneeded-0a1b.so
cat >fast.c <<'C'
#include <Python.h>
int needed(void);
static PyObject *f(PyObject *self, PyObject *args) { return PyLong_FromLong(needed()); }
static PyMethodDef methods[] = {{"f", f, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast", 0, -1, methods};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&module); }
C
gcc -shared -fPIC $(python3-config --includes) -o "fast$(python3-config --extension-suffix)" fast.c -Lwheel.libs -l:libneeded-0a1b.so -Wl,-rpath,'$ORIGIN/wheel.libs'
cat >use.py <<'P'
import fast, multiprocessing, os, subprocess
def times(n): return fast.f() * n
if __name__ == "__main__":
    print(times(1), os.path.dirname(fast.__file__) == os.getcwd())
    for way in "fork", "spawn":
        with multiprocessing.get_context(way).Pool(2) as pool: print(pool.map(times, [1, 2]))
    print(subprocess.check_output(["bin/origin"]), subprocess.check_output("bin/abs; bin/origin", shell=True))
P
python3 use.py
