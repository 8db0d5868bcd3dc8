#!/bin/bash
# own
# seconds: 300
# Programs that no loader loads the library into do the same in a mount without /dev/fuse as on tmpfs: static ones of glibc's
# and musl's, musl's dynamic ones, Go's: files, signals, threads, children, and programs that they execute.
set -u
. "$(dirname "$0")/own.sh"
if ! python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).prctl(59, 1, 1, ctypes.c_ulong(2**64 - 2), 0) != 0)' 2>/dev/null; then
    echo 'skip mapped_programs: this kernel does not hand system calls back: static programs are NOT tested'
    exit 0
fi
cat >all.c <<'C'
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static __thread int own = 7;
static volatile int came, on_stack;
static char stack[64 << 10];
static sigjmp_buf back;
static void say(const char *what, long value) { printf("%s %ld\n", what, value), fflush(stdout); }
static void handler(int n) {
    int saved = errno, fd = open("handled", O_CREAT | O_WRONLY | O_APPEND, 0644);
    char here;
    came += write(fd, "s", 1), on_stack |= &here >= stack && &here < stack + sizeof stack;
    close(fd), errno = saved;
}
static void broken(int n) { siglongjmp(back, n); }
static void *thread(void *number) {
    char name[40];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "t%ld.%d", (long)number, i);
        int fd = open(name, O_CREAT | O_RDWR, 0644);
        if (fd < 0 || write(fd, name, 5) != 5 || close(fd)) return "files";
        if (i % 2 && unlink(name)) return "unlink";
        own++;
    }
    return own == 107 ? 0 : "words";
}
static void *ends(void *unused) { pthread_exit(own == 7 ? 0 : "words"); }
static void *forks(void *unused) {
    int status, child = fork();
    if (!child) execlp("cat", "cat", "f", (char *)0), _exit(9);
    waitpid(child, &status, 0);
    return (void *)(long)status;
}
static int run(int (*how)(int *, char **), char **words) {
    int child = 0, status = 0, error = how(&child, words);
    if (error) return -error;
    return waitpid(child, &status, 0) == child ? status : -1;
}
static int by_spawn(int *child, char **words) { return posix_spawnp(child, words[0], 0, 0, words, environ); }
static int by_vfork(int *child, char **words) {
    if (!(*child = vfork())) execvp(words[0], words), _exit(44);
    return 0;
}
static int by_fork(int *child, char **words) {
    if (!(*child = fork())) execvp(words[0], words), _exit(44);
    return 0;
}
int main(int count, char **words) {
    char text[400], *more[] = {"cat", "f", 0}, *self[] = {words[0], "again", "x y", 0}, *none[] = {"nothing-there", 0};
    if (count > 1) return printf("again: %s, %s, %s\n", words[1], words[2], getenv("MINE")), 5;
    int fd = open("f", O_CREAT | O_RDWR | O_EXCL, 0640);
    say("open", fd > 2), say("write", write(fd, "some text\n", 10)), say("again", open("f", O_CREAT | O_EXCL, 0600) < 0 ? errno : 0);
    struct stat st;
    say("size", fstat(fd, &st) ? -1 : st.st_size);
    struct iovec parts[2] = {{text, 4}, {text + 4, 6}};
    say("readv", preadv(fd, parts, 2, 0)), say("bad", pread(fd, (void *)8, 4, 0) < 0 ? errno : 0);
    ftruncate(fd, 8192);
    char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[5000] = 'x', say("map", pread(fd, text, 1, 5000) == 1 && *text == 'x'), munmap(map, 8192);
    ftruncate(fd, 10), close(fd);
    mkdir("d", 0755), rename("f", "d/f"), link("d/f", "f"), symlink("d/f", "s");
    DIR *dir = opendir("d");
    int names = 0;
    while (readdir(dir)) names++;
    closedir(dir), say("names", names);
    FILE *stream = popen("cat s; echo $MINE", "r");
    while (fgets(text, sizeof text, stream)) fputs(text, stdout);
    say("popen", pclose(stream));
    int len = readlink("/proc/self/exe", text, sizeof text - 1);
    text[len > 0 ? len : 0] = 0, puts(strrchr(text, '/')), say("exe", open("/proc/self/exe", O_RDONLY) >= 0);
    puts(getcwd(text, sizeof text) ? strrchr(text, '/') : "no directory");
    char *memory = malloc(300000), *before = sbrk(0);
    memset(memory, 1, 300000), free(memory);
    if (sbrk(1 << 20) != (void *)-1) memset(before, 1, 1 << 20), say("brk", (char *)sbrk(0) - before), brk(before);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, other = {.sa_handler = broken}, was;
    sigaction(SIGUSR1, &action, 0), raise(SIGUSR1), say("came", came), say("altogether", on_stack);
    sigaction(SIGUSR1, 0, &was), say("handler", was.sa_handler == handler);
    stack_t stacks = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&stacks, 0), action.sa_flags = SA_ONSTACK, sigaction(SIGUSR2, &action, 0), raise(SIGUSR2);
    say("on a stack", on_stack);
    sigaction(SIGSEGV, &other, 0);
    int caught = sigsetjmp(back, 1);
    if (!caught) *(volatile int *)8 = 1;
    say("caught", caught);
    sigset_t set, empty;
    sigfillset(&set), sigprocmask(SIG_BLOCK, &set, 0), raise(SIGUSR1), say("blocked", came), sigemptyset(&empty);
    sigsuspend(&empty), say("suspended", came), sigprocmask(SIG_SETMASK, &empty, 0);
    putenv("MINE=mine");
    say("spawn", run(by_spawn, more)), say("vfork", run(by_vfork, more)), say("fork", run(by_fork, more));
    say("self", run(by_fork, self)), say("self", run(by_spawn, self)), say("self", run(by_vfork, self));
    say("nothing", run(by_vfork, none)), say("nothing", run(by_fork, none)), say("nothing", run(by_spawn, none));
    *self = "/proc/self/exe", say("exe", run(by_vfork, self));
    int ways[2];
    pipe(ways);
    if (!fork()) dup2(ways[1], 1), write(1, "through a pipe\n", 15), _exit(0);
    text[read(ways[0], text, 100)] = 0, fputs(text, stdout), wait(0);
    pthread_t threads[8];
    pthread_attr_t apart;
    pthread_attr_init(&apart), pthread_attr_setdetachstate(&apart, PTHREAD_CREATE_DETACHED);
    for (int round = 0; round < 10; round++) {
        void *result;
        for (long i = 0; i < 8; i++) say("thread", pthread_create(threads + i, 0, i == 3 ? ends : thread, (void *)i));
        for (int i = 0; i < 20; i++) kill(getpid(), SIGUSR1);
        for (int i = 0; i < 8; i++)
            if (pthread_join(threads[i], &result) || result) printf("thread %d: %s\n", i, (char *)result);
        for (int i = 0; i < 4; i++) pthread_create(threads, &apart, ends, 0);
    }
    void *status;
    pthread_create(threads, 0, forks, 0), pthread_join(*threads, &status), say("forks", (long)status);
    say("nine", syscall(SYS_getpid) == getpid()), unlink("handled");
    char *next[] = {"sh", "-c", "cat <&9; exec \"$0\" again last", words[0], 0};
    fd = open("f", O_RDONLY), dup2(fd, 9), close(fd);
    execvp("sh", next);
}
C
cat >all.go <<'G'
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
func main() {
	var all sync.WaitGroup
	for g := 0; g < 8; g++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if g%2 == 0 {
				runtime.LockOSThread() // The thread ends with it.
			}
			for i := 0; i < 100; i++ {
				name := fmt.Sprintf("g%d/f%d", g, i)
				must(os.MkdirAll(filepath.Dir(name), 0o755))
				must(os.WriteFile(name, []byte(name), 0o644))
				if text, err := os.ReadFile(name); err != nil || string(text) != name {
					must(fmt.Errorf("%s: %s, %v", name, text, err))
				}
				if i%25 == 0 {
					runtime.GC()
				}
			}
		}()
	}
	all.Wait()
	count := 0
	must(filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error { count++; return err }))
	fmt.Println("walked", count)
	file, err := os.OpenFile("m", os.O_CREATE|os.O_RDWR, 0o644)
	must(err)
	must(file.Truncate(8192))
	memory, err := syscall.Mmap(int(file.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	memory[5000] = 'x'
	must(syscall.Munmap(memory))
	one := make([]byte, 1)
	_, err = file.ReadAt(one, 5000)
	fmt.Println(string(one), err)
	for _, words := range [][]string{{"cat", "g1/f1"}, {"sh", "-c", "cat g1/f2; exit 3"}, {os.Args[0], "again"}, {"nothing-there"}} {
		if len(os.Args) > 1 {
			break
		}
		command := exec.Command(words[0], words[1:]...)
		command.Stdin = bytes.NewReader(nil)
		said, err := command.CombinedOutput()
		fmt.Println(string(said), err)
	}
	_, err = os.ReadDir("nothing")
	fmt.Println(err)
	func() {
		defer func() { fmt.Println("recovered", recover() != nil) }()
		var nothing *int
		*nothing = 1
	}()
	go func() {
		for {
		}
	}()
	for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
		runtime.GC() // Stops the loop, which makes no calls, by a signal.
	}
}
G
"$bypath" mkfs i --size 256M >/dev/null && mkdir m || exit 1
# both NAME PROGRAM: on tmpfs, and in the mount.
both() {
    rm -rf there && mkdir -p there/w
    (cd there/w && timeout 100 "$2"; echo "exit code $?") >wanted 2>&1
    timeout 100 "$bypath" run --no-fuse -m "i:$PWD/m" -- sh -c "mkdir m/w; cd m/w && $2; echo \"exit code \$?\"; cd ..; tar -cf - w >$PWD/tree; rm -rf w" >got 2>&1
    diff wanted got || fail "$1: not as on tmpfs"
    mkdir tree.d && tar -xf tree -C tree.d && diff -r there/w tree.d/w || fail "$1: another tree"
    rm -rf tree.d
}
built() { # NAME COMMAND…
    local name=$1
    shift
    if ! command -v "$1" >/dev/null; then
        echo "skip mapped_programs: no $1 here: $name programs are NOT tested"
        return 1
    fi
    "$@" >built 2>&1 || { cat built; echo "skip mapped_programs: $1 makes none here: $name programs are NOT tested"; false; }
}
built 'static' gcc -w -O1 -static -pthread -o static all.c && both static "$PWD/static"
# As in gVisor by systrap.
by_table() { # NAME PROGRAM
    [ -x "$2" ] && BYPATH_BASES=table both "$1, by table" "$2"
}
by_table static "$PWD/static"
built 'static position-independent' gcc -w -O1 -static-pie -pthread -o pie all.c && both static-pie "$PWD/pie"
built "musl's static" musl-gcc -w -O1 -static -pthread -o musl-static all.c && both musl-static "$PWD/musl-static"
by_table musl-static "$PWD/musl-static"
built "musl's" musl-gcc -w -O1 -pthread -o musl all.c && both musl "$PWD/musl"
export GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOTELEMETRY=off CGO_ENABLED=0 GO111MODULE=on
printf 'module all\ngo 1.22\n' >go.mod
if built "Go's" go build -o go-static all.go; then
    both go "$PWD/go-static"
    by_table go "$PWD/go-static"
    # One that does not say in its data that Go's compiler made it.
    sed 's/\xff Go buildinf:/\xff No buildinf:/' go-static >go-other && chmod 755 go-other && both go-other "$PWD/go-other"
fi
# As the first program, from the mount, and by a script.
if [ -x static ]; then
    "$bypath" import -q static i:/static && "$bypath" import -q musl i:/musl 2>/dev/null
    got=$("$bypath" run --no-fuse -m "i:$PWD/m" -- "$PWD/m/static" again first 2>&1)
    same 'from the mount' "$got" 'again: again, first, (null)'
    printf '#!%s again\n' "$PWD/m/static" >script && chmod 755 script && "$bypath" import -q script i:/script
    got=$("$bypath" run --no-fuse -m "i:$PWD/m" -- sh -c 'm/script' 2>&1)
    same 'a script' "$got" 'again: again, m/script, (null)'
fi
exit "${failed:-0}"
