#!/bin/bash
# own
# needs: runsc
# seconds: 120
# In gVisor, without /dev/fuse and dispatch: what a shell, git and Python do in a mount is what they do elsewhere, and what static
# programs, musl's with threads and Go's do. (Any `runsc` that is first in PATH: by ptrace or systrap.)
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
cp /usr/bin/env own-env && ./own-env echo once && ./own-env /usr/bin/python3 -c 'import os; os.execv("./own-env", ["env", "echo", "again"])' && rm own-env
printf '#!/bin/sh\necho a script\nexit 3\n' >s && chmod +x s && ./s
echo "exit $?"
dir=$(mktemp -d) && cp s "$dir" && cd "$dir" && ./s
echo "exit $?"
rm -r "$dir"
cd "$1" && find . -path ./r/.git -prune -o -print | sort
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
same 'a static program' "$(sandbox "$bypath" run --mount new:64M:/bp -- "$PWD/static" /bp/f 2>&1)" ran
same 'doctor' "$(sandbox "$bypath" doctor "$PWD/static" 2>&1 | grep -c 'mapped by the library')" 1
cat >threads.c <<'C'
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static __thread int caught;
static void count(int signal) { caught += signal; }
static void *work(void *at) {
    char name[64], text[8] = "";
    for (int i = 0; i < 20; i++) {
        sprintf(name, "%s.%d", (char *)at, i);
        FILE *file = fopen(name, "w+");
        if (!file || fputs("text", file) < 0 || fseek(file, 0, SEEK_SET) || !fgets(text, 8, file) || fclose(file)) return "files";
        pthread_kill(pthread_self(), SIGUSR1);
        if (strcmp(text, "text") || unlink(name)) return "text";
    }
    return caught == 20 * SIGUSR1 ? NULL : "signals";
}
int main(int count_, char **args) {
    char names[8][64];
    pthread_t threads[8];
    signal(SIGUSR1, count);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) sprintf(names[i], "%s/%d", args[1], i), pthread_create(&threads[i], NULL, work, names[i]);
        for (int i = 0; i < 8; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            if (wrong) puts(wrong);
        }
    }
    int status = 1;
    if (!fork()) work(names[0]), execlp("sh", "sh", "-c", "exit 3", (char *)0);
    wait(&status);
    printf("%d\n", status >> 8);
    sprintf(names[0], "ls %s | wc -l", args[1]);
    fflush(stdout);
    return system(names[0]);
}
C
cat >threads.go <<'G'
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

func main() {
	var all sync.WaitGroup
	for i := range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			name := filepath.Join(os.Args[1], fmt.Sprint(i))
			for range 30 {
				if err := os.WriteFile(name, []byte("text"), 0o644); err != nil {
					panic(err)
				}
				if text, err := os.ReadFile(name); err != nil || string(text) != "text" {
					panic(name)
				}
			}
		}()
	}
	all.Wait()
	said, err := exec.Command("ls", os.Args[1]).Output()
	fmt.Println(len(said), err)
}
G
try() { # NAME WANTED PROGRAM
    same "$1" "$(sandbox "$bypath" run --mount new:64M:/bp -- "$3" /bp 2>&1)" "$2"
}
built() { # WHAT COMPILER ARGUMENT…
    local what=$1
    shift
    if ! command -v "$1" >/dev/null || ! "$@" >built 2>&1; then
        cat built 2>/dev/null
        echo "skip in_gvisor: $1 makes none here: $what in gVisor are NOT tested"
        return 1
    fi
}
export CGO_ENABLED=0 GOCACHE=$PWD/go-cache GOFLAGS= GO111MODULE=off
built 'static programs' cc -O1 -w -static -pthread -o static-threads threads.c && try "a static program's threads" $'3\n0' "$PWD/static-threads"
built "musl's static programs" musl-gcc -O1 -w -static -pthread -o musl-static threads.c && try "musl's threads, static" $'3\n0' "$PWD/musl-static"
built "musl's programs" musl-gcc -O1 -w -pthread -o musl threads.c && try "musl's threads" $'3\n0' "$PWD/musl"
built "Go's programs" go build -o go-threads threads.go && try "Go's threads" '38 <nil>' "$PWD/go-threads"
exit $failed
