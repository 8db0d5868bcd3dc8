#!/bin/bash
# own
# needs: runsc
# seconds: 120
# In gVisor, without /dev/fuse and dispatch: what a shell, git and Python do in a mount is what they do elsewhere; a static program
# is not started on what is in the mount, and doctor says why.
set -u
. "$(dirname "$0")/own.sh"
sandbox() { timeout 60 runsc --network=none --ignore-cgroups do "$@"; }
if ! sandbox true 2>/dev/null; then
    echo 'skip in_gvisor: runsc starts nothing here: a mount in gVisor is NOT tested'
    exit 0
fi
cat >work <<'S'
cd "$1" || exit
mkdir -p a/b && echo text >a/b/f && ln -s b a/l && cat a/l/f && mv a/b/f g && cp g h && rm g
git init -q r && cd r && echo one >x && git add x && git -c user.name=a -c user.email=b commit -qm c && git log --format=%s && git status --short
/usr/bin/python3 -c 'import os; open("y", "w").write("z" * 100); print(sorted(os.listdir(".")), os.stat("y").st_size)'
cd .. && find . -path ./r/.git -prune -o -print | sort
S
mkdir plain && wanted=$(sh work "$PWD/plain" 2>&1)
said=$(sandbox "$bypath" run --mount new:64M:/bp -- sh "$PWD/work" /bp 2>/dev/null)
same 'as elsewhere' "$said" "$wanted"
# Its name ends where the stack does.
cp /bin/true t
said=$(cd "$PWD" && sandbox "$bypath" run --mount new:64M:/bp -- ./t >/dev/null 2>&1; echo $?)
same 'a program with a short name' "$said" 0
cat >static.c <<'C'
static long call(long n, long a, long b, long c) {
    long r;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
__attribute__((naked, used)) void _start(void) { asm("mov %rsp, %rdi; and $-16, %rsp; call begin"); }
__attribute__((used)) void begin(long *stack) { call(1, 1, (long)"ran\n", 4), call(60, 0, 0, 0); }
C
cc -O1 -w -static -nostdlib -fno-stack-protector -o static static.c || exit 1
said=$(sandbox "$bypath" run --mount new:64M:/bp -- "$PWD/static" /bp/f 2>&1)
same 'a static program' "$(echo "$said" | grep -c 'static is not run\|^ran$')" 1
same 'doctor' "$(sandbox "$bypath" doctor "$PWD/static" 2>&1 | grep -c 'served by a kernel mount only\|mapped by the library')" 1
exit $failed
