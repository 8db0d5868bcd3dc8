#!/bin/sh
# needs: go gcc
# seconds: 300
# A Go program with cgo: its runtime's own system calls on goroutines' small stacks, signals, children, C code beside it. Go's
# tools are static: they build it elsewhere.
here=$PWD
made=$(mktemp -d /tmp/bypath-go.XXXXXX) && cd "$made" || exit
trap 'rm -rf "$made" 2>/dev/null' EXIT
export GOCACHE="$made/cache" GOPATH="$made/path" GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOTELEMETRY=off CGO_ENABLED=1 GO111MODULE=on
printf 'module own\ngo 1.18\n' >go.mod
cat >main.go <<'P'
package main

/*
#include <stdio.h>
#include <unistd.h>
static int c_size(const char *p) { FILE *f = fopen(p, "r"); if (!f) return -1; fseek(f, 0, SEEK_END); int n = ftell(f); fclose(f); return n; }
*/
import "C"

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		_, file, line, _ := runtime.Caller(1)
		fmt.Println(filepath.Base(file), line)
		os.Exit(1)
	}
}

func files(dir string, deep int) {
	var pad [512]byte // some stack
	pad[deep%512] = 1
	if deep > 0 {
		files(dir, deep-1)
		return
	}
	must(os.MkdirAll(dir, 0o755))
	name := filepath.Join(dir, "f")
	must(os.WriteFile(name, []byte(strings.Repeat("text ", 1000)), 0o644))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(err)
	b := make([]byte, 10)
	_, err = f.ReadAt(b, 5)
	must(err)
	_, err = f.Seek(0, io.SeekEnd)
	must(err)
	_, err = f.WriteString("end")
	must(err)
	must(f.Sync())
	must(f.Truncate(100))
	must(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	must(f.Close())
	must(os.Rename(name, name+"2"))
	must(os.Symlink("f2", name))
	all, err := os.ReadDir(dir)
	must(err)
	if len(all) != 2 {
		must(fmt.Errorf("%d names", len(all)))
	}
	if C.c_size(C.CString(name)) != 100 {
		must(fmt.Errorf("by C: other"))
	}
	info, err := os.Stat(name)
	must(err)
	if info.Size() != 100 {
		must(fmt.Errorf("size %d", info.Size()))
	}
	must(os.RemoveAll(dir))
}

func main() {
	var caught int64
	c := make(chan os.Signal, 100)
	signal.Notify(c, syscall.SIGUSR1)
	go func() {
		for range c {
			atomic.AddInt64(&caught, 1)
		}
	}()
	var group sync.WaitGroup
	for g := 0; g < 20; g++ {
		group.Add(1)
		g := g
		go func() {
			defer group.Done()
			for i := 0; i < 20; i++ {
				files(fmt.Sprintf("d%d/%d", g, i), i%7)
				if i%5 == 0 {
					syscall.Kill(os.Getpid(), syscall.SIGUSR1)
				}
			}
		}()
	}
	group.Wait()
	time.Sleep(20 * time.Millisecond)
	fmt.Println("caught", atomic.LoadInt64(&caught) > 0)
	must(os.WriteFile("in", []byte("from go\n"), 0o644))
	for i := 0; i < 20; i++ {
		out, err := exec.Command("cat", "in").CombinedOutput()
		must(err)
		if i == 0 {
			fmt.Printf("child %q\n", out)
		}
	}
	cmd := exec.Command("sh", "-c", "cat; pwd | grep -c /w$; exit 3")
	in, err := os.Open("in")
	must(err)
	cmd.Stdin = in
	out, err := cmd.Output()
	fmt.Printf("%q %v\n", out, err)
	_, err = exec.Command("/nothing").Output()
	fmt.Println(err)
	_, err = os.Open("nothing")
	fmt.Println(err)
	func() {
		defer func() { fmt.Println("recovered", recover()) }()
		var p *int
		*p = 1
	}()
	w, err := os.Getwd()
	must(err)
	fmt.Println(filepath.Base(w))
	var names []string
	must(filepath.WalkDir(".", func(p string, d os.DirEntry, err error) error { names = append(names, p); return err }))
	sort.Strings(names)
	fmt.Println(names)
	runtime.GC()
	f, err := os.Create("map")
	must(err)
	must(f.Truncate(8192))
	m, err := syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	m[5000] = 'x'
	must(syscall.Munmap(m))
	b, err := os.ReadFile("map")
	must(err)
	fmt.Println(b[5000])
}
P
mkdir tmp
HOME="$made" TMPDIR="$made/tmp" go build -o prog . 2>/dev/null || echo "not built"
cd "$here" && mkdir w && cd w && "$made/prog"
echo "exit $?"
cd ..
for i in 1 2 3 4 5; do
    mkdir w$i && cd w$i && GOMAXPROCS=$i "$made/prog" 2>&1 | sed "s/^w$i$/w/" >../said$i
    cd ..
    cmp said1 said$i
done
