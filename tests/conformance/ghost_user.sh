#!/bin/bash
# Who dies with a wrecked thread block, or with a robust list of its own, is no user of the image from then on: its
# record lock is free, `bypath info` doesn't show it, repair and mkfs don't wait for it. Who lives so is not disturbed.
# own
set -u
. "$(dirname "$0")/own.sh"
at=$PWD/m
cat >g.c <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *lose(void *list) {
    static void *none[3];
    none[0] = none;
    syscall(SYS_set_robust_list, list ? list : none, sizeof none);
    return 0;
}
static void *works(void *directory) {
    char name[4096];
    sprintf(name, "%s.thread", (char *)directory);
    close(open(name, O_CREAT | O_RDWR, 0644));
    return lose(0);
}
int main(int count, char **word) {
    int file = open(word[1], O_RDWR | O_CREAT, 0644);
    struct flock lock = {.l_type = F_WRLCK};
    if (fcntl(file, F_SETLK, &lock)) return perror("lock"), 3;
    if (!strcmp(word[2], "crash")) {
        char *block;
        __asm__("mov %%fs:0,%0" : "=r"(block));
        memset(block + 0x200, 0x41, 0x700);
        *(volatile int *)0 = 1;
    }
    if (!strcmp(word[2], "list")) lose(0);
    if (!strcmp(word[2], "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, works, word[1]);
        pthread_join(thread, 0);
    }
    if (!strcmp(word[2], "live")) lose(0), printf("%d\n", getpid()), fflush(stdout), pause();
    if (!strcmp(word[2], "zombie")) {
        if (!fork()) lose(0), fcntl(file, F_SETLK, &lock), _exit(0);
        printf("%d\n", getpid()), fflush(stdout), pause();
    }
    _exit(0);
}
C
cc -w -O1 -o g g.c -lpthread || exit 1
# until COMMAND…: it comes true, at the latest in ten seconds.
until_true() { for _ in $(seq 100); do "$@" && return; sleep 0.1; done; return 1; }
users() { "$bypath" info i | sed -n 's/^users *//p'; }
run() { "$bypath" run --no-fuse -m "i:$at" -- "$@"; }
ways="list thread"
[ "$(uname -m)" != x86_64 ] || ways="crash $ways"
for way in $ways; do
    "$bypath" mkfs --force i --size 64M >/dev/null || fail "mkfs after $way"
    run sh -c "./g $at/x $way; ./g $at/x end" 2>said || { cat said; fail "the lock is held by one that is dead ($way)"; }
    [ "$(users)" = none ] || fail "users after $way: $(users)"
    run ./g "$at/x" "$way" 2>/dev/null
    "$bypath" check --repair i >said 2>&1 || { cat said; fail "repair after $way"; }
    run ./g "$at/x" "$way" 2>/dev/null
    # What names its users is lost, and the mutexes say who lives.
    rm -f /dev/shm/bypath-*
    run ./g "$at/x" end || fail "no use of the image after $way and the loss of the segment"
done

# Nobody has waited for it: the kernel keeps its number.
mkfifo pipe
run ./g "$at/x" zombie >pipe & keeper=$!
read -r pid <pipe
# That is one user, and the session's own program.
one_user() { [ "$(users | wc -w)" -eq 3 ]; }
until_true one_user || fail "a zombie is a user: $(users)"
kill "$pid"
wait $keeper 2>/dev/null
no_user() { [ "$(users)" = none ]; }
until_true no_user || fail "users: $(users)"

for apart in '' 'unshare -pf --kill-child'; do
    # Who lives, here or in another PID namespace, keeps what it has.
    # shellcheck disable=SC2086
    $apart "$bypath" run --no-fuse -m "i:$at" -- ./g "$at/x" live >pipe & keeper=$!
    read -r pid <pipe
    for _ in 1 2 3; do run ./g "$at/x" end 2>/dev/null && fail "the lock of one that lives was given away ($apart)"; done
    "$bypath" mkfs --force i --size 64M >/dev/null 2>&1 && fail "an image in use was made anew ($apart)"
    "$bypath" check --repair i >/dev/null 2>&1 && fail "an image in use was repaired ($apart)"
    one_user || fail "the one that lives is no user: $(users) ($apart)"
    # In the other namespace its number is another one, and it goes with the first process there.
    if [ -z "$apart" ]; then kill "$pid"; else kill -9 $keeper; fi
    wait $keeper 2>/dev/null
    [ -n "$apart" ] || until_true no_user || fail "users: $(users)"
done
exit 0
