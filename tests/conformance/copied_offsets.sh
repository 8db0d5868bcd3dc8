# A program without the library, which inherits files of a mount, moves their positions also where it has the kernel copy.
# own
. "$(dirname "$0")/own.sh"
fails() { echo "$1" && exit 1; }
[ -c /dev/fuse ] || { echo "skip: no /dev/fuse" && exit 0; }
cat >copy.c <<'C'
#define _GNU_SOURCE
#include <unistd.h>
int main(void) { return copy_file_range(0, 0, 1, 0, 3, 0) != 3; }
C
cc -static -w -o copy copy.c 2>/dev/null || { echo "skip: no static C library" && exit 0; }
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir m
said=$("$bypath" run -m "i.img:$PWD/m" -- sh -c 'echo abcdef >m/in; (echo one; ./copy; cat; echo two) <m/in >m/out; cat m/out')
[ "$said" = "$(printf 'one\nabcdef\ntwo')" ] || fails "$said"
