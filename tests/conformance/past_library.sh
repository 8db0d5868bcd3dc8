#!/bin/bash
# own
# Programs that the library can't be loaded into are mapped by it; where that can't be, they are not started if they would take
# what lies below a mount point for what is in the mount. Calls by numbers that are not known are errors there. With a kernel
# mount all go by that.
set -u
. "$(dirname "$0")/own.sh"
cat >static.c <<'C'
// Without a C library: prints its first argument's contents, or says that there are none.
static long call(long n, long a, long b, long c) {
    long r;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
__attribute__((naked, used)) void _start(void) { asm("mov %rsp, %rdi; and $-16, %rsp; call begin"); }
__attribute__((used)) void begin(long *stack) {
    char text[100];
    long fd = stack[0] > 1 ? call(2, stack[2], 0, 0) : 0;
    long len = fd < 0 ? fd : call(0, fd, (long)text, sizeof text);
    if (len < 0) call(1, 1, (long)"error\n", 6);
    else call(1, 1, (long)text, len);
    call(60, len < 0, 0, 0);
}
C
cc -O1 -w -static -nostdlib -fno-stack-protector -o static static.c || exit 1
cat >calls.c <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// Newer calls by their numbers: by path, by descriptor, and of another file.
static const char *said(long r) { return r >= 0 ? "done" : strerrorname_np(errno); }
int main(int c, char **v) {
    char text[200] = "at";
    struct { char *value; unsigned size, flags; } value = {text, 2, 0};
    int fd = open(v[1], O_RDWR);
    for (int n = 463; n <= 475; n++) {
        long args[3];
        switch (n) {
        case 463: args[0] = (long)"user.a", args[1] = (long)&value, args[2] = sizeof value; break;
        case 464: args[0] = (long)"user.a", args[1] = (long)&value, args[2] = sizeof value; break;
        case 465: args[0] = (long)text, args[1] = sizeof text; break;
        case 466: args[0] = (long)"user.a"; break;
        default: args[0] = 0, args[1] = 0;
        }
        int mid = n < 467;
        long by = mid ? syscall(n, AT_FDCWD, v[1], 0, args[0], args[1], args[2]) : syscall(n, AT_FDCWD, v[1], text, 24, 0);
        printf("%d %s", n, said(by));
        by = mid ? syscall(n, fd, "", AT_EMPTY_PATH, args[0], args[1], args[2]) : syscall(n, fd, "", text, 24, AT_EMPTY_PATH);
        printf(" %s\n", said(by));
    }
    printf("cachestat %s\n", said(syscall(451, fd, text, text, 0)));
    long other = syscall(465, AT_FDCWD, "/", 0, text, sizeof text);
    printf("other %s\n", other >= 0 || errno == ENOSYS ? "as before" : said(other));
}
C
cc -O1 -w -o calls calls.c || exit 1
cat >kernel.c <<'C'
// kernel KIND COMMAND…: as on a kernel that hands calls back from all but a range only (old), by filters only (filter), or not at all
// (none).
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
int main(int c, char **v) {
    int none = strcmp(v[1], "old");
    struct sock_filter code[] = {
        LOAD(nr), EQUAL(SYS_prctl, 0, 6), LOAD(args[0]), EQUAL(strcmp(v[1], "none") ? -1u : PR_SET_SECCOMP, 3, 0), EQUAL(59, 0, 3),
        LOAD(args[1]), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, none ? 1 : 2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) return 99;
    execv(v[2], v + 2);
    return 98;
}
C
cc -O1 -w -o kernel kernel.c || exit 1
"$bypath" mkfs i --size 64M >/dev/null && mkdir m && cp static / && echo text >f && "$bypath" import -q f i:/f || exit 1
trap 'rm -f /static' EXIT
at=$PWD/m
short() { "$bypath" run --no-fuse -m "i:$at" -- sh -c "$1" 2>&1; }
filter() { ./kernel filter "$bypath" run --no-fuse -m "i:$at" -- sh -c "$1" 2>&1; }
none() { ./kernel none "$bypath" run --no-fuse -m "i:$at" -- sh -c "$1" 2>&1; }
can() { # KIND: whether that kernel can
    ./kernel "$1" /usr/bin/python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).prctl(59, 1, 1, ctypes.c_ulong(2**64 - 2), 0) != 0)'
}
refused='is not run: it cannot be preloaded'
# Where the kernel does not hand their calls back.
for how in "./static $at/f" "cd $at && /static f" "./static x --file=$at/f" "./static 'cat <$at/f'" "cat f | xargs -I% ./static $at" "env -C $at /static" \
    "python3 -c 'import subprocess; subprocess.run([\"./static\", \"$at/f\"])' 2>&1 | head -1" "ln -s $at l; ./static l/f"; do
    said=$(none "$how")
    same "refused: $how" "$(echo "$said" | grep -c "static $refused")" 1
    same "and nothing printed: $how" "$(echo "$said" | grep -c 'text\|error')" 0
done
# By system calls that start another program in the borrowed memory of this one, too.
same 'the error' "$(none "./static $at/f; echo \$?" | tail -1)" 126
# A path that only begins alike; and programs that have nothing to do with it: said once.
mkdir -p "$at-else" && echo else >"$at-else/f"
said=$(none "./static $at-else/f; ./static f; ./static f")
same 'others run' "$(echo "$said" | grep -v ^bypath:)" $'else\ntext\ntext'
same 'and it is said once' "$(echo "$said" | grep -c 'static does not see what is in')" 1
loader=$(ls /lib64/ld-linux-*.so* /lib/ld-linux-*.so* 2>/dev/null | head -1)
same 'the loader itself loads the library' "$(short "$loader $(command -v cat) $at/f")" text
if [ "$(stat -c %a "$(command -v su)" 2>/dev/null)" = 4755 ]; then
    same 'a set-uid program of the same user' "$(short "cd $at; su -s /bin/sh -c 'cat f' 2>&1")" text
    cp -p "$(command -v su)" . && chmod 4755 su && chmod 755 . && chmod 666 i
    same 'of another one' "$(short "setpriv --reuid 65534 --clear-groups ./su -c 'cat $at/f'" | grep -c "su $refused")" 1
fi
# The first program of a session is looked at as any.
./kernel none "$bypath" run --no-fuse -m "i:$at" -- ./static "$at/f" >said 2>&1
same 'the first' "$?$(grep -c "static $refused" said)" 1261
# Where it does, static ones are served, by whatever way they are started.
if can old; then
    for how in "./static $at/f" "cd $at && /static f" "./static <$at/f" "cat $at/f | xargs -I% ./static $at/f" "env -C $at /static f" \
        "python3 -c 'import subprocess; subprocess.run([\"./static\", \"$at/f\"])'" "rm -f l; ln -s $at l; ./static l/f" "cp static $at/s; $at/s $at/f" \
        "./kernel old ./static $at/f" "printf '#!./static\n' >s; chmod +x s; ./s <$at/f | grep -c static | sed s/1/text/"; do
        same "served: $how" "$(short "$how")" text
    done
    for how in "./static $at/f" "cd $at && /static f" "./static <$at/f" "cp static $at/s; $at/s $at/f" "env -C $at /static f" "busybox cat $at/f" \
        "busybox sh -c 'busybox sh -c \"busybox cat $at/f | cat\"'" "busybox sh -c 'sh -c \"./static $at/f\"'"; do
        case $how in *busybox*) command -v busybox >/dev/null || continue;; esac
        same "served by a filter: $how" "$(filter "$how")" text
    done
    same 'the first' "$("$bypath" run --no-fuse -m "i:$at" -- ./static "$at/f" 2>&1)" text
    same 'doctor' "$("$bypath" doctor ./static | grep -c 'mapped by the library')" 1
    cp static unreadable && chmod 644 unreadable
    same 'one that may not be executed' "$(short './unreadable; echo $?' | tail -1)" 126
fi
# One that makes system calls of its own is served; where the kernel does not hand them back, a line says what it does not see.
cat >own.c <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
int main(int c, char **v) {
    char text[10];
    long fd = open(v[1], O_RDONLY), r;
    printf("%s\n", fd >= 0 && read(fd, text, 4) == 4 ? "by the library" : "?");
    asm volatile("syscall" : "=a"(r) : "a"(SYS_openat), "D"(AT_FDCWD), "S"(v[1]), "d"(0) : "rcx", "r11", "memory");
    printf("%s\n", r >= 0 ? "by itself" : "not by itself");
}
C
cc -O1 -w -o own own.c || exit 1
served=$'by the library\nby itself\nby the library\nby itself'
if can old; then
    same 'calls of its own' "$(short "./own $at/f; ./own $at/f")" "$served"
    same 'doctor' "$("$bypath" doctor ./own | grep -c 'the kernel hands them to the library')" 1
    same 'each object' "$("$bypath" doctor ./own | grep -c '/own: makes system calls of its own: handed back\|^    /.*: by the C library')" 1
    same 'one by a filter' "$(./kernel filter "$bypath" doctor ./static | grep -c 'static: makes .* a filter hands them back')" 1
    same 'one without' "$(./kernel none "$bypath" doctor ./own | grep -c '/own: makes .* go past the library')" 1
    same 'on an older kernel' "$(short "./kernel old ./own $at/f; ./kernel old ./own $at/f")" "$served"
else
    echo 'skip past_library: this kernel does not hand system calls back: that they are served is NOT tested'
fi
said=$(short "./kernel none ./own $at/f; ./kernel none ./own $at/f")
same 'calls of its own, where they are not handed back' "$(echo "$said" | grep -v ^bypath:)" \
    $'by the library\nnot by itself\nby the library\nnot by itself'
same 'are said once' "$(echo "$said" | grep -c 'own makes some system calls without the C library')" 1
said=$(short "./calls $at/f")
same 'numbers that are served' "$(echo "$said" | grep -cE '^46([345] done done|6 done ENODATA)$')" 4
same 'flags that no file has' "$(echo "$said" | grep -c '^46[89] EOPNOTSUPP EOPNOTSUPP$')" 2
same 'numbers that are not known' "$(echo "$said" | grep -c '^4.. ENOSYS ENOSYS$')" 7
same 'one without an older call' "$(echo "$said" | grep cachestat)" 'cachestat done'
same 'of other files' "$(echo "$said" | grep other)" 'other as before'
same 'patched' "$(BYPATH_WAYS=patched "$bypath" run --no-fuse -m "i:$at" -- ./calls "$at/f" 2>&1)" "$said"
if [ -c /dev/fuse ]; then
    both() { "$bypath" run -m "i:$at" -- sh -c "$1" 2>&1; }
    same 'with a kernel mount' "$(both "./static $at/f; cd $at && /static f; /static <f")" $'text\ntext\ntext'
    same 'calls of its own too' "$(both "./own $at/f; cd $at; $PWD/own f")" $'by the library\nby itself\nby the library\nby itself'
    same 'where they are not handed back' "$(both "./kernel none ./own $at/f; ./kernel none ./own $at/f")" "$served"
    same 'the first' "$("$bypath" run -m "i:$at" -- ./own "$at/f" 2>&1)" $'by the library\nby itself'
    # To another root directory what is open goes along, as the kernel's.
    mkdir root && cp static root/
    same 'another root' "$(both "chroot root /static <$at/f >$at/out; cat $at/out")" text
fi
exit $failed
