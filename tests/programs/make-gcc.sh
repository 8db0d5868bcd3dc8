#!/bin/bash
# needs: make gcc g++
# seconds: 300
# A small C and C++ project: compile, archive, link, run the product, rebuild only what changed.
mkdir src include
cat >include/a.h <<'C'
int a(int); int b(int);
C
printf '#include "a.h"\nint a(int x) { return b(x) + 1; }\n' >src/a.c
printf '#include "a.h"\nint b(int x) { return x * 2; }\n' >src/b.c
cat >src/main.c <<'C'
#include <stdio.h>
#include "a.h"
int main(int n, char **v) { FILE *f = fopen("made", "w"); fprintf(f, "%d\n", a(n)); fclose(f); f = fopen("made", "r"); int x; if (fscanf(f, "%d", &x) != 1) return 2; printf("%d %d\n", x, n); return x == 3 ? 0 : 1; }
C
printf '#include <iostream>\n#include <fstream>\nint main() { std::ofstream("cpp.out") << "from c++" << std::endl; std::ifstream f("cpp.out"); std::string s; std::getline(f, s); std::cout << s << "\\n"; }\n' >src/p.cc
printf 'CFLAGS = -O1 -Iinclude -MMD -MP\nOBJ = src/main.o liba.a\nall: prog shared cpp\nprog: $(OBJ)\n\t$(CC) -o $@ $^\nliba.a: src/a.o src/b.o\n\t$(AR) rcD $@ $^\nshared: src/main.o libs.so\n\t$(CC) -o $@ src/main.o -L. -ls -Wl,-rpath,$(CURDIR)\nlibs.so: src/a.c src/b.c\n\t$(CC) -shared -fPIC -Iinclude -o $@ $^\ncpp: src/p.cc\n\t$(CXX) -o $@ $<\nclean:\n\trm -f prog shared cpp *.a *.so src/*.o src/*.d\n-include $(wildcard src/*.d)\n.PHONY: all clean\n' >Makefile
make prog
echo "exit $?"
make prog
./prog
echo "exit $?"
./prog one two
echo "exit $?"
cat made
sleep 0.02
touch src/b.c
make prog | grep -c src/b
make -q prog
echo "up to date $?"
make -j2 cpp 2>&1
./cpp
nm -g src/a.o
ar t liba.a
strip prog -o stripped
./stripped
file_size() { stat -c %s "$1"; }
[ "$(file_size stripped)" -lt "$(file_size prog)" ] && echo smaller
make shared >/dev/null 2>&1
echo "built $?"
gcc -E src/main.c -Iinclude | tail -1
gcc -Iinclude -c src/bad.c
echo "exit $?"
echo 'int main() { return undefined; }' >src/bad.c
gcc -c src/bad.c 2>&1 | grep -c error
gcc -save-temps -Iinclude -c src/a.c
ls
make clean
ls src
rm -f a.* ./*.s
mkdir many
for i in 1 2 3 4 5 6 7 8; do printf 'int f%s(int x) { return x + %s; }\n' $i $i >many/$i.c; done
printf 'all: libmany.a depth\nlibmany.a: $(patsubst %%.c,%%.o,$(wildcard many/*.c))\n\t$(AR) rcD $@ $^\ndepth:\n\t+$(MAKE) -s -C many -f ../sub.mk\n' >many.mk
printf 'all: $(patsubst %%.c,%%.so,$(wildcard *.c))\n%%.so: %%.c\n\tgcc -shared -o $@ $<\n' >sub.mk
make -s -j4 -f many.mk
echo "exit $?"
ar t libmany.a | sort
ls many
make -q -f many.mk libmany.a
echo "up to date $?"
rm many/*.so libmany.a
