#!/bin/sh
# needs: go
# ignore: /cache/|^./prog$
# seconds: 300
# The Go tools and what they make are static, and mapped by the library or by the kernel mount: a build with its cache in the tree, and its product run there.
export GOCACHE="$PWD/cache" GOPATH="$PWD/path" GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOTELEMETRY=off CGO_ENABLED=0 GO111MODULE=on GOMAXPROCS=2
printf 'module tiny\ngo 1.18\n' >go.mod
cat >main.go <<'P'
package main

import "syscall"

func must(err error) {
	if err != nil {
		println(err.Error())
	}
}
func main() {
	must(syscall.Mkdir("d", 0o755))
	fd, err := syscall.Open("d/f", syscall.O_CREAT|syscall.O_RDWR, 0o640)
	must(err)
	_, err = syscall.Write(fd, []byte("from go\n"))
	must(err)
	b := make([]byte, 20)
	n, err := syscall.Pread(fd, b, 5)
	must(err)
	print(string(b[:n]))
	must(syscall.Rename("d/f", "d/g"))
	var s syscall.Stat_t
	must(syscall.Fstat(fd, &s))
	println(s.Size, s.Nlink, s.Mode)
	must(syscall.Symlink("g", "d/s"))
	must(syscall.Rmdir("d"))
	wd, err := syscall.Getwd()
	must(err)
	println(wd[len(wd)-4:])
	m, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	m[0] = 'F'
	must(syscall.Munmap(m))
	n, err = syscall.Read(0, b)
	must(err)
	print(string(b[:n]))
}
P
# The library is compiled once for all runs, outside; its cache is copied into the tree.
kept=/var/tmp/bypath-go-$(id -u)
GOCACHE=$kept go build -ldflags '-s -w -buildid=' -o /dev/null . && cp -r "$kept" cache
go build -ldflags '-s -w -buildid=' -o prog .
echo "exit $?"
echo in >in
./prog <in
echo "exit $?"
cat d/s
./prog </dev/null 2>&1 | head -1
touch main.go
go build -o again . && cmp again prog | wc -l
rm again
du -s cache | grep -c cache
rm -rf cache path .config
