#!/bin/sh
# needs: go
# ignore: /cache/|^./(prog|bad.go)$
# A static program in Go that walks, writes from many goroutines, maps and watches; gofmt.
export GOCACHE="$PWD/cache" GOPATH="$PWD/path" GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0
printf 'module tiny\n\ngo 1.18\n' >go.mod
cat >main.go <<'P'
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	must(err)
	must(os.MkdirAll("tree/a/b", 0o755))
	_, err = syscall.InotifyAddWatch(watch, "tree", syscall.IN_CREATE)
	must(err)
	must(os.WriteFile("tree/told", nil, 0o644))
	events := make([]byte, 4096)
	n, err := syscall.Read(watch, events)
	must(err)
	fmt.Println("told of", string(events[16:20]), n)

	var all sync.WaitGroup
	for i := 0; i < 64; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			name := fmt.Sprintf("tree/a/b/%02d", i)
			must(os.WriteFile(name, []byte(name), 0o600))
			must(os.Rename(name, name+".done"))
		}(i)
	}
	all.Wait()

	names, bytes := 0, int64(0)
	must(filepath.WalkDir("tree", func(path string, entry fs.DirEntry, err error) error {
		must(err)
		info, err := entry.Info()
		must(err)
		if !entry.IsDir() {
			bytes += info.Size()
		}
		names++
		return nil
	}))
	fmt.Println(names, bytes)

	file, err := os.OpenFile("tree/a/b/07.done", os.O_RDWR, 0)
	must(err)
	page, err := syscall.Mmap(int(file.Fd()), 0, 4, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	copy(page, "TREE")
	must(syscall.Munmap(page))
	text, err := os.ReadFile("tree/a/b/07.done")
	must(err)
	fmt.Println(string(text))
}
P
go build -ldflags '-s -w -buildid=' -o prog .
echo "built $?"
./prog
printf 'package  main\nfunc  f( ) { }\n' >bad.go
gofmt bad.go
gofmt -l .
rm -rf cache path .config tmp
