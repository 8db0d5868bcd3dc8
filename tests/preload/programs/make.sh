#!/bin/sh
# A program is configured, compiled, linked and run inside.
command -v cc >/dev/null && command -v make >/dev/null || {
    echo skip: no compiler
    exit
}
mkdir src
for i in 1 2 3 4; do printf '#include "x.h"\nint f%d(int a) { return a + X; }\n' $i >src/f$i.c; done
echo '#define X 10' >src/x.h
printf '#include <stdio.h>\n#include "x.h"\nint f1(int); int f4(int);\nint main(int c, char **v) { FILE *f = fopen("out.txt", "w"); fprintf(f, "%%d\\n", f1(f4(c))); fclose(f); printf("ran %%s\\n", v[c - 1]); return 3; }\n' >src/main.c
cat >Makefile <<'M'
OBJ = src/main.o src/f1.o src/f2.o src/f3.o src/f4.o
prog: $(OBJ) lib.a
	$(CC) -o $@ $(OBJ)
src/%.o: src/%.c src/x.h
	$(CC) -c -O1 -o $@ $<
lib.a: $(OBJ)
	ar rcs $@ $(OBJ)
clean:
	rm -f prog lib.a $(OBJ)
.PHONY: clean
M
make
make
ls src
touch -d 'now + 2 seconds' src/x.h
make -s -j2 2>&1 | grep -v 'Clock skew\|modification time'
./prog one
echo $?
cat out.txt
nm lib.a | grep -c ' T '
ar t lib.a
size prog | wc -l
strip prog
./prog two
cc -E -Isrc src/f1.c | tail -1
echo 'int x = ' >bad.c
cc -c bad.c 2>&1 | grep -c error
cc -g -pipe -o g src/main.c src/f1.c src/f4.c && ./g three
cc -M src/f1.c | tr -d '\\\n'
echo
objdump -d prog | grep -c ret | awk '{print ($1>0)}'
make clean
ls
printf 'a:\n\techo $@ > $@\n\tcat $@\nb: a\n\tcp $< $@\n' >m2
make -f m2 b
cat b
cc -Isrc -xc - -o - -S <src/f1.c | grep -c f1
