#!/bin/bash
# own
# needs: bindfs
# seconds: 300
# A kernel mount beside a daemon's cache: static programs, another user, a program that nobody has started with the library
# see what the session sees, and change it; what is missing comes through the session's daemon. A daemon that dies or hangs
# fails what it is needed for, and nothing else. Method: the same path for both, by programs with the library and without.
. "$(dirname "$0")/own.sh"
[ -e /dev/fuse ] || { echo 'skip: no /dev/fuse' && exit 0; }
low=$PWD/low at=$PWD/at image=$PWD/c.img
mkdir at && chmod 755 . at
server=$(ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server 2>/dev/null | head -1)
printf '#!/bin/sh\nexec %s\n' "$server" >ssh && chmod +x ssh
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --mount "fuse:$command @:$at,cache=$image:64M$options" -- "$@"
}
daemon() { for id in $(pgrep -x bindfs); do { tr "\0" " " <"/proc/$id/cmdline" | grep -q "$low " && echo "$id"; } 2>/dev/null; done; }
export low at
outside_in "$at"
export -f daemon
past_program
cc -O1 -static -x c -o still - <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int c, char **v) {
    char text[64];
    int fd = open(v[1], O_RDONLY);
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0) return perror(v[1]), 1;
    return write(1, text, n) != n;
}
C
# One of Go's with C in it, where there is Go: its calls are its own.
cat >goes.go <<'G'
package main

// #include <stdio.h>
import "C"
import (
	"fmt"
	"os"
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], append(text, "go\n"...), 0644)
	}
	fmt.Println(err)
}
G
go=$(command -v go || ls /usr/local/go/bin/go 2>/dev/null)
export GOCACHE=$work/gocache GOFLAGS=-mod=mod HOME=$work
[ -n "$go" ] && CGO_ENABLED=1 "$go" build -o goes goes.go 2>gone || { echo "skip: no Go: a program of it is NOT tested: $(cat gone)" && printf '#!/bin/sh\ncat "$1" >"$2" && echo go >>"$2" && echo "<nil>"\n' >goes && chmod +x goes; }

for name in bindfs sshfs; do
    case $name in
    bindfs) command="bindfs -f $low" ;;
    sshfs)
        command -v sshfs >/dev/null && [ -n "$server" ] || { echo 'skip: no sshfs: it is NOT tested' && continue; }
        command="sshfs -f -o ssh_command=$work/ssh here:$low" ;;
    esac
    rm -rf low c.img* && mkdir -p low/sub/deep && chmod 755 low && echo below >low/f && echo far >low/sub/deep/g && seq 40000 >low/long && echo s >low/sub/static
    # What is there is seen by whoever looks, before anybody has brought it; and the session's own is seen at once.
    run '' bash -c "$one_directory"'
"$work/still" "$1/sub/static"; "$work/past" append "$1/made" >/dev/null && echo appended
"$work/goes" "$1/long" "$1/by_go" && tail -2 by_go && rm by_go
chmod 777 box; outside "setpriv --reuid 65534 --regid 65534 --clear-groups bash -c \"cat made; echo mine >box/mine; echo no 2>/dev/null >no\" 2>/dev/null"; stat -c "%U %s" box/mine
' bash "$at" >got 2>err
    same "$name: one mount" "$? $(cat got err)" "0 $one_directory_says
s
appended
<nil>
40000
go
new
more
nobody 5"
    same "$name: no mount is left" "$(kernel_mounts "$at") $(ls -A at)" '0 '
    same "$name: below" "$(ls -A low | tr '\n' ' ')$(cat low/made low/box/f low/box/mine | tr '\n' ' ')" 'box long made out sub new more below mine '
    "$bypath" check "$image" >/dev/null || { echo "$name: check" && failed=1; }
done

# Both ways change names and look for what is missing, all the time: rounds, which looks for it wait for once names have moved,
# go on, and nobody is told that something is busy.
command="bindfs -f $low"
rm -rf low c.img* && for d in $(seq 10); do mkdir -p low/cold/$d && for f in $(seq 20); do echo $f >low/cold/$d/$f; done; done
cat >jobs <<'J'
cd "$1" || exit
for w in $2; do
    for i in $(seq 60); do
        echo $i >$w.$i && sync $w.$i && mv $w.$i moved.$w.$i || exit
        [ $((i % 3)) != 0 ] || rm moved.$w.$i
        cat cold/$((i % 10 + 1))/$w >/dev/null && ls -l cold/$((i % 10 + 1)) >/dev/null || exit
    done &
done
wait
J
run ',actimeo=1' bash -c 'outside "bash $work/jobs $at \"1 2 3\"; echo over" >kernel & bash $work/jobs "$1" "4 5"; wait; cat kernel' bash "$at" >got 2>&1
same 'both ways at once' "$(cat got)" over
same 'below, of both ways' "$(ls low | wc -l) $(cat low/moved.*.59 | sort | uniq -c | tr -s ' ')" '201  5 59'

# The daemon dies: what is here goes on, by the kernel too; what is missing says so.
command="bindfs -f $low"
rm -rf low c.img* && mkdir -p low/sub low/cold && echo here >low/f && echo cold >low/cold/g
run ',actimeo=max' bash -c 'outside ls; outside cat f; kill -9 $(daemon); while [ -n "$(daemon)" ]; do sleep 0.01; done
outside cat f; outside "echo 1 >new"; cat "$1/new"; outside cat cold/g; cat "$1/cold/g"; outside cat f' bash "$at" >got 2>&1
same 'daemon killed' "$(grep -vE '^(bypath: |  )' got | sed 's/^cat: .*: /cat: /')" 'cold
f
sub
here
here
1
cat: Transport endpoint is not connected
cat: Transport endpoint is not connected
here'
"$bypath" cache discard "$image" --yes >/dev/null 2>&1
# It hangs: who needs it waits until its time is over, and is told; others go on, and the session ends.
rm -rf low c.img* && mkdir -p low/sub low/cold && echo here >low/f && echo cold >low/cold/g
run ',actimeo=max,ro,timeout=2' bash -c 'outside cat f; kill -STOP $(daemon); outside "cat cold/g & cat f; echo read; wait"; kill -CONT $(daemon)
for i in $(seq 500); do outside cat cold/g | grep -q cold && echo again && break; sleep 0.02; done' bash "$at" >got 2>&1
same 'daemon stopped' "$(grep -vE '^(bypath: |  )' got | sed 's/^cat: .*: .*/cat: failed/')" 'here
here
read
cat: failed
again'
same 'no mount is left' "$(kernel_mounts "$at") $(ls -A at)" '0 '

# The server is killed: its mount goes, the session goes on, and all is written.
run ',sync=image' bash -c 'echo 1 >"$1/k1"; cd /; kill -9 $(pgrep -f "bypath mount --foreground.* $1 --while-used") || echo none
for i in $(seq 500); do grep -q "$1 fuse.bypath" /proc/mounts || break; sleep 0.01; done; cat "$1/k1" "$1/cold/g"; echo 2 >"$1/k2"' bash "$at" >got 2>err
same 'server killed' "$(cat got err low/k1 low/k2)" $'1\ncold\n1\n2'
# A second session with the same cache, at the same place, shares the mount.
run '' bash -c 'echo one >"$1/one"; for i in $(seq 3000); do [ -e "$1/two" ] && break; sleep 0.01; done; cat "$1/two"' bash "$at" >got1 2>err1 &
other=$!
in_mount() { [ "$(kernel_mounts "$at")" = 1 ]; }
wait_until in_mount
run '' bash -c 'for i in $(seq 3000); do [ -e "$1/one" ] && break; sleep 0.01; done; cat "$1/one"; echo two >"$1/two"; outside cat two' bash "$at" >got2 2>err2
wait "$other"
same 'two sessions' "$(cat got1 got2 err1 err2)" $'two\none\ntwo'
no_mount() { [ "$(kernel_mounts "$at")" = 0 ]; }
wait_until no_mount || { echo 'the mount stays' && failed=1; }
same 'below, of two' "$(cat low/one low/two)" $'one\ntwo'
# Not where the daemon itself would come by it.
mkdir own && timeout 60 "$bypath" run --mount "fuse:bindfs -f $PWD/own @:$PWD/own,cache=$PWD/own.img:32M" -- sh -c 'echo 1 >"$1/f"; grep -c "$1 fuse.bypath" /proc/mounts' sh "$PWD/own" >got 2>err
same 'over what it shows' "$(cat got err own/f)" $'0\n1'
kill "$shell"
exit $failed
