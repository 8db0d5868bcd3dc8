#!/bin/bash
# Several file systems in one namespace: unmodified FUSE daemons from Debian's packages,
# a directory of the kernel's and an image, used by real programs with no FUSE of the
# kernel's in the way: an empty file lies over /dev/fuse, where that is allowed.
#
#   BYPATH=target/release/bypath run.sh [NAME…]
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
if [ -z "${BYPATH_NO_DEVICE:-}" ]; then
    export BYPATH_NO_DEVICE=1
    if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
        exec unshare -m bash -c '[ ! -e /dev/fuse ] || mount --bind /dev/null /dev/fuse; exec "$0" "$@"' "$here/run.sh" "$@"
    fi
fi
# Not a tmpfs: overlays want extended attributes of their own.
begin direct d "${TMPDIR:-/tmp}"
cd "$work" || exit 2
# What sessions share lies in a directory of this run's own, so that what is left is this run's.
BYPATH_SEGMENT_DIR=$(mktemp -d "${SHM:-/dev/shm}/bypath-direct.XXXXXX") || exit 2
export BYPATH_SEGMENT_DIR
chmod 1777 "$BYPATH_SEGMENT_DIR"
trap 'end; rm -rf "$BYPATH_SEGMENT_DIR"' EXIT
libraries=$(dirname "$bypath")
passed=0 left_out=0
fail() { echo "FAIL $name: $1"; [ -z "${2:-}" ] || sed 's/^/     /' "$2" | head -20; failed=$((failed + 1)); }
pass() { echo "ok   $name${1:+ ($1)}"; passed=$((passed + 1)); }
leave_out() { echo "skip $name: $1: LEFT OUT, not passed"; left_out=$((left_out + 1)); }
has() { # PROGRAM…  (files: functions here have the same names)
    local program
    for program; do
        if ! type -P "$program" >/dev/null && ! [ -x "/usr/sbin/$program" ]; then
            leave_out "$program is not installed"
            return 1
        fi
    done
}
# Nothing here may hang.
session() { timeout -k 5 "${LIMIT:-180}" "$bypath" run --no-fuse "$@" </dev/null; }

mkdir -p tree/d/e && echo hello >tree/f && seq 50000 >tree/d/big && ln -s d/big tree/l && echo deep >tree/d/e/x && chmod 640 tree/f

# use SPEC [OPTIONS]: the same script in the mount and beside it.
use() {
    mkdir -p "$name.k"
    (cd "$name.k" && bash "$here/use.sh") >k.out 2>&1 </dev/null
    session --mount "$1:/direct${2:+,$2}" -- bash -c 'cd /direct && mkdir fresh && cd fresh && exec bash "$0" 2>&1' "$here/use.sh" >m.out 2>m.err
    if cmp -s k.out m.out; then pass "$(wc -l <k.out) lines"; else diff k.out m.out >what; cat m.err >>what; fail 'differs from the kernel (<)' what; fi
    [ $# -gt 1 ] || one "$1"
}

# The C API's program; `one SOURCE`: it mounts and uses this alone.
c_program() {
    [ -x by-c ] || cc -O1 -Wall -Wextra -Werror -I"$here/../../crates/capi/include" -o by-c "$here/session.c" -L"$libraries" -lbypath 2>m.err || { fail 'it does not compile' m.err; return 1; }
}
by_c_program() { LD_LIBRARY_PATH=$libraries timeout -k 5 "${LIMIT:-180}" ./by-c "$@" </dev/null; }
one() {
    c_program || return
    if by_c_program one "$1" >m.out 2>&1 && [ "$(tail -1 m.out)" = good ]; then pass 'C API'; else fail 'by the C API' m.out; fi
}

host() { mkdir h && use 'host:h'; }

confined() {
    mkdir -p c/in && echo inside >c/in/f && echo outside >secret && ln -s ../../secret c/in/up && ln -s "$work/secret" c/in/abs && ln -s f c/in/own && ln -s ../in/f c/in/round
    session --mount 'host:c/in:/direct/in' -- bash -c 'cat /direct/in/own; cat /direct/in/up; cat /direct/in/abs; cat /direct/in/../secret; cd /direct/in; cat ../secret; cat round; cat /direct/in/../in/f' >m.out 2>&1
    # The text of a link means what it means in the namespace; nothing leads to the directory above c/in.
    if [ "$(grep -c outside m.out)" -eq 1 ] && [ "$(grep -c inside m.out)" -eq 3 ]; then pass; else fail 'symlinks and ..' m.out; fi
}

squashfuse() {
    has squashfuse mksquashfs || return
    mksquashfs tree tree.sqfs -quiet -no-progress >/dev/null 2>&1
    session --mount 'fuse:squashfuse -f tree.sqfs @:/direct' -- bash -c 'diff -r /direct tree && cmp /direct/l tree/d/big && ! touch /direct/x 2>/dev/null && cd /direct/d/e && pwd && cat x ../../f && exec 3<../big && head -c 5 <&3 && sh -c "cat <&3" | cksum' >m.out 2>&1
    printf '/direct/d/e\ndeep\nhello\n1\n2\n3' >k.out
    tail -c +6 tree/d/big | cksum >>k.out
    sed -i 's/^3\([0-9]* [0-9]*\)$/3\1/' k.out
    if cmp -s k.out m.out; then pass; else diff k.out m.out >what; fail 'differs' what; fi
}

bindfs() { has bindfs && mkdir b && use 'fuse:bindfs -f b @'; }
# In the background, as daemons are usually started.
background() { has bindfs && mkdir bg && use 'fuse:bindfs bg @'; }
unionfs() { has unionfs && mkdir u1 u2 && use 'fuse:unionfs -f -o cow u1=RW:u2=RO @'; }
overlay() { has fuse-overlayfs && mkdir lower upper work && use 'fuse:fuse-overlayfs -f -o lowerdir=lower,upperdir=upper,workdir=work @'; }

# libfuse's own examples: by path, by descriptor, by node.
examples=/usr/share/doc/libfuse3-dev/examples
has_examples() {
    [ -e $examples/passthrough_ll.c ] && return
    leave_out 'libfuse3-dev is not installed'
    return 1
}
# example NAME OUTPUT [OPTION…]: compiles one.
example() {
    cc -w -O2 -D_FILE_OFFSET_BITS=64 -DHAVE_UTIMENSAT -DHAVE_POSIX_FALLOCATE -DHAVE_SETXATTR -DHAVE_COPY_FILE_RANGE -I/usr/include/fuse3 -I$examples "${@:3}" -o "$2" "$examples/$1.c" -lfuse3 2>m.err
}
passthrough() {
    local which whole=$name
    has_examples || return
    for which in passthrough passthrough_fh passthrough_ll; do
        name=$which
        if ! example "$which" "$which"; then fail 'it does not compile' m.err; continue; fi
        mkdir -p "$which.d"
        case $which in
            passthrough_ll) use "fuse:./$which -f -o source=$work/$which.d @" ;;
            *) use "fuse:./$which -f -o modules=subdir,subdir=$work/$which.d @" ;;
        esac
    done
    name=copy_file_range
    copied "./passthrough_ll -f -o source=$work/passthrough_ll.d @" && pass
    # It has no such function: programs read and write.
    session --mount "fuse:./passthrough_fh -f -o modules=subdir,subdir=$work/passthrough_fh.d @:/direct" -- python3 -c '
import errno, os
with open("/direct/from", "w+b") as file, open("/direct/to", "wb") as target:
    file.write(b"bytes")
    file.flush()
    try:
        raise SystemExit(os.copy_file_range(file.fileno(), target.fileno(), 5, 0, 0))
    except OSError as error:
        assert error.errno == errno.EXDEV, error' >m.out 2>&1 && pass 'not known' || fail 'where it is not known' m.out
    name=$whole
}

# What a daemon is asked for: as little as by the kernel. Nothing that it says is believed beyond a call, yet a call does not ask
# twice; a search and an open are its own to refuse. Who opens by what others have open is asked about all the same.
asked() {
    has cc || return
    if ! cc -O1 -Wall -Wextra -Werror -D_FILE_OFFSET_BITS=64 -I/usr/include/fuse3 -o asked "$here/asked.c" -lfuse3 -lpthread 2>m.err; then leave_out "it does not compile: $(head -1 m.err)"; return; fi
    session --mount "fuse:./asked asked.log -f -o allow_other @:/direct,allow_other" -- python3 -c '
import os, sys
def asked(call):
    before = len(open("asked.log").read().split())
    result = call()
    return open("asked.log").read().split()[before:], result
def read():
    with open("/direct/f") as file:
        return file.read()
words, about = asked(lambda: os.stat("/direct/f"))
assert words == ["lookup"] and about.st_size == 9, words
words, text = asked(read)
assert text == "contents\n" and words[:3] == ["lookup", "open", "getattr"] and "access" not in words, words
file = os.open("/direct/f", os.O_RDONLY)
words, about = asked(lambda: os.fstat(file))
assert words == ["getattr"], words
if os.getuid() == 0:
    for _ in "open", "closed":
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            try:
                os.open("/direct/f", os.O_RDONLY)
            except PermissionError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, _
        if _ == "open":
            os.close(file)' >m.out 2>&1 && pass || fail 'what it is asked' m.out
}

# copied COMMAND: copy_file_range is the daemon's, and what was read before is not shown in its place.
copied() {
    session --mount "fuse:$1:/direct" -- python3 -c '
import os
data = os.urandom(1_000_000)
open("/direct/from", "wb").write(data)
open("/direct/to", "wb").write(bytes(300_000))
assert open("/direct/to", "rb").read() == bytes(300_000)
with open("/direct/from", "rb") as source, open("/direct/to", "r+b") as target:
    done = 0
    while done < 900_000:
        count = os.copy_file_range(source.fileno(), target.fileno(), 900_000 - done, 50_000 + done, 1_000 + done)
        assert count > 0
        done += count
    assert os.fstat(target.fileno()).st_size == 901_000
    assert os.copy_file_range(source.fileno(), target.fileno(), 10, 1_000_000, 0) == 0
    assert target.read() == bytes(1_000) + data[50_000:950_000]
assert open("/direct/to", "rb").read() == bytes(1_000) + data[50_000:950_000]' >m.out 2>&1 || { fail "$1" m.out; return 1; }
}

# The same without a loader: no library gets into these, so they have a socket. One with threads, in the
# background; many requests under way, the largest messages, and the end, with all written at their end.
static_examples() {
    has_examples || return
    local which whole=$name
    if ! example passthrough_ll static_ll -static || ! example passthrough_fh static_fh -static || ! example hello static_hello -static; then
        leave_out "libfuse 3 can't be linked statically here"
        return
    fi
    mkdir st_ll st_fh
    name=static-ll && use "fuse:./static_ll -o source=$work/st_ll @"
    name=static-fh && use "fuse:./static_fh -f -o modules=subdir,subdir=$work/st_fh @"
    name=$whole
    mkdir st && head -c 5000000 /dev/urandom >st/many
    session --mount "fuse:./static_ll -f -o source=$work/st @:/direct" --mount 'fuse:./static_hello -f -s @:/hello' -- bash -c '
        cat /hello/hello; "$0" mounts | grep -c "requests by socket"; "$0" mounts --json | grep -c "\"carrier\": \"socket\""
        for i in 1 2 3 4 5 6 7 8; do (cp /direct/many /direct/c$i && cmp /direct/many /direct/c$i && cmp st/many st/c$i && rm /direct/c$i && echo same) & done; wait
        dd if=/direct/many of=/direct/big bs=1M status=none; cmp st/many st/big && ls /direct' "$bypath" >m.out 2>m.err
    printf '%s\n' 'Hello World!' 2 2 same same same same same same same same big many >k.out
    # Their end is an orderly one: libfuse says nothing of a socket that was closed.
    [ "$(head -1 m.out)" = 'Hello World!' ] && grep -v 'max threads' m.err >>m.out
    if cmp -s k.out m.out; then pass 'many at once'; else diff k.out m.out >what; cat m.err >>what; fail 'differs' what; fi
}

# Daemons with a loader over a socket, where one is asked for: what they say to the kernel's mount is found in their
# words; one that insists on moving its replies by splice is refused.
by_socket() {
    has squashfuse mksquashfs fuse-overlayfs && has_examples || return
    if ! example passthrough sock_pt; then fail 'it does not compile' m.err; return; fi
    mkdir -p so sl su sw && use "fuse:./sock_pt -f -o modules=subdir,subdir=$work/so @" carrier=socket
    mksquashfs tree sock.sqfs -quiet -no-progress >/dev/null 2>&1
    session --mount 'fuse:squashfuse -f -o ro sock.sqfs @:/direct,carrier=socket' --mount 'fuse:squashfuse -f sock.sqfs @:/memory' -- bash -c '
        diff -r /direct tree && diff -r /direct /memory && cat /direct/d/e/x; touch /direct/x 2>&1 | grep -o "Read-only file system"; "$0" mounts | grep -o "by memory\|by socket"' "$bypath" >m.out 2>m.err
    session --mount 'fuse:fuse-overlayfs -f -o lowerdir=sl,upperdir=su,workdir=sw @:/direct,carrier=socket' -- true 2>&1 | grep -o 'carrier=memory' >>m.out
    printf '%s\n' deep 'Read-only file system' 'by socket' 'by memory' 'carrier=memory' >k.out
    if cmp -s k.out m.out; then pass 'both ways'; else diff k.out m.out >what; cat m.err >>what; fail 'differs' what; fi
}

# Go's, which call the kernel past libc, in the foreground and the background: one takes the socket's name for its mount point.
gocryptfs() {
    has gocryptfs || return
    mkdir gc && echo secret >gc.pass && command gocryptfs -init -q -scryptn 10 -passfile gc.pass gc >m.out 2>&1 || { fail 'no encrypted directory can be made' m.out; return; }
    use "fuse:gocryptfs -f -q -passfile gc.pass gc @"
    # In the background it outlives the session by a moment, and so does what it has to say.
    session --mount "fuse:gocryptfs -q -passfile $work/gc.pass $work/gc @:/direct" -- bash -c 'cp -r tree/d /direct/back && diff -r tree/d /direct/back && ls /direct' >back.out 2>back.err
    printf '%s\n' back fresh >k.out
    if cmp -s k.out back.out; then pass background; else diff k.out back.out >what; cat back.err >>what; fail 'in the background' what; fi
    if [ "$(ls gc | wc -l)" -ne 4 ] || [ -e gc/back ] || grep -rq deep gc; then ls gc >what; fail 'it is not encrypted' what; else pass encrypted; fi
}

# Another wants `fusermount` to mount, and to give it the device.
rclone() {
    has rclone || return
    mkdir -p rc/old && echo old >rc/old/f
    session --mount "fuse:rclone mount --config $work/rclone.conf --cache-dir $work/rcache $work/rc @:/direct" -- bash -c '
        cat /direct/old/f; cp -r tree/d tree/f /direct && diff -r tree/d /direct/d && mv /direct/f /direct/d/e/g && cat /direct/d/e/g; rm /direct/d/big; ls -R /direct; "$0" mounts | grep -o "by socket"' "$bypath" >m.out 2>m.err
    printf '%s\n' old hello /direct: d old '' /direct/d: e '' /direct/d/e: g x '' /direct/old: f 'by socket' deep hello >k.out
    cat rc/d/e/x rc/d/e/g >>m.out
    if cmp -s k.out m.out; then pass; else diff k.out m.out >what; cat m.err >>what; fail 'differs' what; fi
}

# A daemon at a socket that means harm: each call has its error, other calls their answers, and nothing hangs.
hostile() {
    local how seconds
    # Without a loader, where that can be had: it starts at once on a busy machine too.
    if ! cc -O1 -Wall -Wextra -Werror -static -o hostile "$here/hostile.c" 2>m.err && ! cc -O1 -Wall -Wextra -Werror -o hostile "$here/hostile.c" 2>m.err; then fail 'it does not compile' m.err; return; fi
    for how in strays long error silent piece short empty closes; do
        seconds=60
        [ "$how" != silent ] || seconds=5
        echo "$how $(session --mount "fuse:./hostile $how @:/direct,carrier=socket,timeout=$seconds" -- bash -c '
            stat -c %F /direct; stat /direct/x 2>&1 | sed "s/.*: //"; stat -c %F /direct 2>&1 | sed "s/.*: //"' 2>m.err | tr '\n' ',')"
    done >m.out
    sed 's/[^ ]* /&directory,/; s/$/,/' >k.out <<'END'
strays No such file or directory,directory
long Input/output error,directory
error Input/output error,directory
silent Connection timed out,directory
piece Transport endpoint is not connected,Transport endpoint is not connected
short Transport endpoint is not connected,Transport endpoint is not connected
empty Transport endpoint is not connected,Transport endpoint is not connected
closes Transport endpoint is not connected,Transport endpoint is not connected
END
    if cmp -s k.out m.out; then pass; else diff k.out m.out >what; fail 'differs' what; fi
}

archivemount() {
    has archivemount || return
    tar cf a.tar -C tree .
    session --mount 'fuse:archivemount -f a.tar @:/direct' -- bash -c 'cmp /direct/d/big tree/d/big && mkdir /direct/dir && echo new >/direct/dir/n && cat /direct/dir/n && ls /direct/dir' >m.out 2>&1
    if [ "$(tr '\n' ' ' <m.out)" = 'new n ' ] && tar tf a.tar | grep -q 'dir/n$'; then pass; else fail 'the archive' m.out; fi
}

sshfs() {
    has sshfs sshd ssh-keygen || return
    mkdir -p ssh remote && ssh-keygen -q -t ed25519 -N '' -f ssh/host && ssh-keygen -q -t ed25519 -N '' -f ssh/user && cp ssh/user.pub ssh/keys
    [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
    local port server
    for port in $(shuf -i 20000-30000 -n 5); do sshd_at "$port" && break; port=; done
    if [ -z "$port" ]; then fail 'sshd does not start' ssh/log; return; fi
    local remote="sshfs -f -o port=$port,IdentityFile=$work/ssh/user,StrictHostKeyChecking=no,UserKnownHostsFile=$work/ssh/known 127.0.0.1:$work/remote @"
    session --mount "fuse:$remote:/direct" -- bash -c 'cp -r tree /direct/t && diff -r tree /direct/t && mv /direct/t/f /direct/t/d/g && cat /direct/t/d/g && rm -r /direct/t/d/e && ls /direct/t/d && echo more >>/direct/t/d/g' >m.out 2>m.err
    local said
    c_program && said=$(by_c_program one "fuse:$remote" 2>&1 | tail -1)
    kill $server
    wait $server
    if [ "$(tr '\n' ' ' <m.out)" = 'hello big g ' ] && [ "$(tr '\n' ' ' <remote/t/d/g)" = 'hello more ' ] && [ "$said" = good ]; then pass; else echo "by the C API: $said" | cat - ssh/log m.err >>m.out; fail 'the remote directory' m.out; fi
}
sshd_at() { # PORT: false where that is somebody else's
    printf 'Port %s\nListenAddress 127.0.0.1\nHostKey %s/ssh/host\nAuthorizedKeysFile %s/ssh/keys\nStrictModes no\nPidFile %s/ssh/pid\nSubsystem sftp internal-sftp\nUsePAM no\nPermitRootLogin yes\n' "$1" "$work" "$work" "$work" >ssh/config
    rm -f ssh/pid
    /usr/sbin/sshd -D -f "$work/ssh/config" -E "$work/ssh/log" &
    server=$!
    # Written when it listens.
    until [ -s ssh/pid ]; do kill -0 $server 2>/dev/null || return; sleep 0.02; done
}

# Objects of a store as files; what the store has in the end is looked at beside it.
s3fs() {
    has s3fs versitygw curl || return
    mkdir -p store/bucket && echo user:secret >s3.pass && chmod 600 s3.pass
    local port server
    for port in $(shuf -i 20000-30000 -n 5); do store_at "$port" && break; port=; done
    if [ -z "$port" ]; then fail 'the store does not start' store.log; return; fi
    session --mount "fuse:s3fs bucket @ -f -o passwd_file=$work/s3.pass,url=http://127.0.0.1:$port,use_path_request_style:/direct" -- bash -c '
        cp tree/f tree/d/big /direct && mkdir /direct/d && cp tree/d/e/x /direct/d && cmp /direct/big tree/d/big && mv /direct/f /direct/d/g &&
        echo more >>/direct/d/g && cat /direct/d/g && rm /direct/big && ls -R /direct' >m.out 2>m.err
    kill $server
    wait $server
    printf '%s\n' hello more /direct: d '' /direct/d: g x hello more deep >k.out
    cat store/bucket/d/g store/bucket/d/x >>m.out
    if cmp -s k.out m.out; then pass; else diff k.out m.out | cat - m.err store.log >what; fail 'differs' what; fi
}
store_at() { # PORT: false where that is somebody else's
    ROOT_ACCESS_KEY=user ROOT_SECRET_KEY=secret versitygw --port "127.0.0.1:$1" posix "$work/store" >store.log 2>&1 &
    server=$!
    until curl -s -o answer "http://127.0.0.1:$1/"; do kill -0 $server 2>/dev/null || return; sleep 0.05; done
    kill -0 $server 2>/dev/null
}

# Five daemons, an image and a directory at once: from one to the other, and a walk through all.
together() {
    has squashfuse mksquashfs bindfs unionfs fuse-overlayfs archivemount || return
    mkdir -p g/b g/u1 g/u2 g/lower g/upper g/work g/host
    cp tree/f g/lower/low && tar cf g/a.tar -C tree f && mksquashfs tree g/t.sqfs -quiet -no-progress >/dev/null 2>&1
    "$bypath" mkfs g/i --size 64M >/dev/null
    cat >g/bypath.toml <<'TOML'
[[mount]]
source = "g/i"
at = "/all"
[[mount]]
source = "host:g/host"
at = "/host"
options = ["rw"]
TOML
    session --mount g/i:/all -- sh -c 'mkdir /all/below /all/x'
    LIMIT=300 session --config g/bypath.toml --mount 'fuse:squashfuse -f g/t.sqfs @:/all/below' --mount 'fuse:bindfs -f g/b @:/bind' \
        --mount 'fuse:unionfs -f -o cow g/u1=RW:g/u2=RO @:/union' --mount 'fuse:archivemount -f g/a.tar @:/archive' \
        --mount 'fuse:fuse-overlayfs -f -o lowerdir=g/lower,upperdir=g/upper,workdir=g/work @:/over' -- bash -ec '
        cp -a /all/below /host/1; cp -a /host/1 /bind/2; mv /bind/2 /union/3; tar cf - -C /union/3 . | (mkdir /over/4; tar xf - -C /over/4)
        cp -r /over/4 /all/5; cp /all/5/d/big /archive/big; cmp /archive/big tree/d/big; diff -r tree /all/5; diff -r tree /over/4; ls /all
        ln /all/5/f /host/f 2>&1 | sed "s/.*: //"; python3 -c "import os
try: os.rename(\"/all/5/f\", \"/bind/f\")
except OSError as e: print(e.strerror)" ; rmdir /all/below 2>&1 | sed "s/.*: //"
        cd /all/below/d/e; cat ../../../5/f; pwd; cd /over/4; cd ..; cat low
        find /all /host /bind /union /archive /over -type f | wc -l; "$0" mounts | sed "s/ *[0-9]* programs.*//" | wc -l' "$bypath" >m.out 2>m.err
    printf '%s\n' 5 below x 'Invalid cross-device link' 'Invalid cross-device link' 'Device or resource busy' hello /all/below/d/e hello 18 7 >k.out
    if cmp -s k.out m.out; then pass; else diff k.out m.out >what; cat m.err >>what; fail 'differs' what; fi
}

# The same by the C API: in such a session, where the short way is loaded too, and with daemons of its own.
by_c() {
    has squashfuse mksquashfs bindfs unionfs fuse-overlayfs archivemount || return
    local way over specs=() pairs=()
    c_program || return
    mkdir -p s && mksquashfs tree s/t.sqfs -quiet -no-progress >/dev/null 2>&1
    for way in joined made; do
        over=s/$way
        mkdir -p $over/b $over/u1 $over/u2 $over/lower $over/upper $over/work $over/host
        tar cf $over/a.tar -C tree f && "$bypath" mkfs $over/i --size 64M >/dev/null && "$bypath" import -q tree $over/i:/below/x
        pairs=("$over/i" /all "fuse:squashfuse -f s/t.sqfs @" /all/below "host:$over/host" /host "fuse:bindfs -f $over/b @" /bind "fuse:unionfs -f -o cow $over/u1=RW:$over/u2=RO @" /union
            "fuse:archivemount -f $over/a.tar @" /archive "fuse:fuse-overlayfs -f -o lowerdir=$over/lower,upperdir=$over/upper,workdir=$over/work @" /over)
        while [ ${#pairs[@]} -gt 0 ] && [ $way = joined ]; do specs+=(--mount "${pairs[0]}:${pairs[1]}") && pairs=("${pairs[@]:2}"); done
        if [ $way = joined ]; then LD_LIBRARY_PATH=$libraries LIMIT=300 session "${specs[@]}" -- ./by-c joined /all /host /bind /union /archive /over; else LIMIT=300 by_c_program made "${pairs[@]}"; fi >m.out 2>m.err
        # What a daemon does at its end is done (archivemount then knows a renamed file by its first name).
        tar tf $over/a.tar | grep -c by-c >>m.out
        printf '%s\n' "10 files, $((7 * $(wc -c <tree/d/big) + 17)) bytes" 1 >k.out
        if cmp -s k.out m.out; then pass $way; else diff k.out m.out >what; cat m.err >>what; fail "$way differs" what; fi
    done
    # It works there as another user too.
    chmod 711 .
    if [ "$(id -u)" -eq 0 ] && ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$work"; then
        leave_out "another user cannot reach $work (TMPDIR)"
        return
    fi
    mkdir s/alone && by_c_program alone s/alone >m.out 2>m.err
    if [ "$(cat m.out s/alone/f | tr '\n' ' ')" = 'good hello! ' ] && [ "$(grep -c ^bypath: m.err)" -eq 2 ]; then pass alone; else cat m.err >>m.out; fail 'alone' m.out; fi
}

# A daemon killed under load: an error at once, never a hang; with `restart` it comes back.
killed() {
    has bindfs || return
    mkdir -p k/src && for i in $(seq 50); do echo "$i" >"k/src/$i"; done
    dies bindfs 'fuse:bindfs -f k/src @:/direct'
    has_examples && example passthrough_ll dying_ll || return
    dies dying_ll "fuse:./dying_ll -f -o source=$work/k/src @:/direct,carrier=socket"
}
dies() { # PROGRAM SPEC
    LIMIT=120 session --mount "$2" -- bash -c '
        (while cat /direct/1 >/dev/null 2>&1; do :; done; cat /direct/1; echo ended) 2>&1 &
        (while ls -lR /direct >/dev/null 2>&1; do :; done; echo ended) &
        sleep 0.5; pkill -KILL -x -P "$(ps -o ppid= -p $$ | tr -d " ")" "$0"; wait; cat /direct/2' "$1" >m.out 2>&1
    if [ "$(grep -c ended m.out)" -eq 3 ] && grep -q 'not connected' m.out; then pass "$1"; else fail "no clear end of $1" m.out; fi
}

restarted() {
    has bindfs || return
    mkdir -p r/src/d && echo 1 >r/src/d/f
    comes_back bindfs 'fuse:bindfs -f r/src @:/direct,restart'
    has_examples && example passthrough_fh back_fh || return
    comes_back back_fh "fuse:./back_fh -f -o modules=subdir,subdir=$work/r/src @:/direct,restart,carrier=socket"
}
comes_back() { # PROGRAM SPEC
    LIMIT=120 session --mount "$2" -- bash -c '
        cd /direct/d; exec 3<f; cat f; session=$(ps -o ppid= -p $$ | tr -d " ")
        for round in 1 2 3; do sleep 1; pkill -KILL -x -P "$session" "$0"; until cat f 2>/dev/null; do :; done; done
        cat <&3; pwd; ls' "$1" >m.out 2>m.err
    if [ "$(tr '\n' ' ' <m.out)" = '1 1 1 1 1 /direct/d f ' ]; then pass "$1"; else cat m.err >>m.out; fail "$1 did not come back" m.out; fi
}

# Parts of a daemon's files are kept and shared; what is written, here or behind the daemon's back, is seen by whoever opens the file after.
pages() {
    has bindfs || return
    mkdir -p pg && seq 100000 >pg/big && cp pg/big pg/other
    session --mount 'fuse:bindfs -f pg @:/direct,pages=4M' -- bash -c '
        exec 3</direct/big; asked() { "$0" mounts --json | grep -o "\"requests\":[0-9]*" | grep -o "[0-9]*"; }
        before=$(asked); while read -r -N 4096 -u 3 part; do :; done; after=$(asked)
        echo $((after - before < 60)); head -c 20 /direct/other >/dev/null; echo outside >pg/other; cat /direct/other
        cat /direct/other; echo inside >>/direct/other; cat /direct/other; cat pg/other; cmp pg/big /direct/big
        dd if=/direct/big bs=4k status=none | cmp - pg/big; truncate -s 5 /direct/other; cat /direct/other; echo; "$0" mounts | grep -c "of pages with"' "$bypath" >m.out 2>m.err
    printf '%s\n' 1 outside outside outside inside outside inside outsi 1 >k.out
    if cmp -s k.out m.out; then pass; else diff k.out m.out >what; cat m.err >>what; fail 'differs' what; fi
}

# Random calls through a daemon that passes a directory on, beside tmpfs; what is believed for no time at all too.
random() {
    local testkit seconds carrier tree
    testkit=$(dirname "$bypath")/testkit
    if ! [ -x "$testkit" ] || ! [ -e /usr/include/fuse3/fuse_lowlevel.h ] || [ "$(id -u)" -ne 0 ]; then
        leave_out 'no testkit beside bypath, no libfuse3-dev, or not root'
        return
    fi
    if ! cc -O2 -Wall -Wextra -Werror -D_FILE_OFFSET_BITS=64 -I/usr/include/fuse3 -o passthrough "$here/passthrough.c" -lfuse3 2>m.err; then fail 'it does not compile' m.err; return; fi
    for seconds in 1 0; do
        # On tmpfs, as the other side is.
        tree=$(mktemp -d /dev/shm/bypath-random.XXXXXX) && chmod 777 "$tree"
        LIMIT=300 BELIEVED=$seconds session --mount "fuse:./passthrough $tree @ -o default_permissions:/direct" -- \
            "$testkit" differential --backend wire --ops "${OPERATIONS:-20000}" --seed "${SEED:-1}" >m.out 2>&1
        rm -rf "$tree"
        if grep -q 'the same$' m.out; then pass "believed for $seconds s"; else fail 'differs' m.out; fi
    done
}

# The example plugin: a directory through a library, called in process.
plugin() {
    [ -e /usr/include/fuse3/fuse.h ] || { leave_out 'libfuse3-dev is not installed'; return; }
    local top=$here/../..
    if ! cc -shared -fPIC -O2 -Wall -Wextra -Werror -D_FILE_OFFSET_BITS=64 -I/usr/include/fuse3 -I"$top/crates/capi/include" -o dirview.so "$top/examples/plugin/dirview.c" 2>m.err ||
        ! cc -Wall -Wextra -Werror -I"$top/crates/capi/include" -o by-plugin "$here/plugin.c" -L"$libraries" -lbypath 2>>m.err; then fail 'it does not compile' m.err; return; fi
    mkdir p && use "plugin:dirview.so,$work/p"
    # By the C API, as it is and in capitals; what it leaves is in the directory.
    mkdir c1 c2
    { LD_LIBRARY_PATH=$libraries timeout 60 ./by-plugin plugin:dirview.so,c1 ello plugin:./by-plugin; LD_LIBRARY_PATH=$libraries timeout 60 ./by-plugin plugin:dirview.so,c2,upper ELLO plugin:./by-plugin; cat c1/kept; ls -A c1 c2; } >m.out 2>&1
    if [ "$(tr '\n' ' ' <m.out)" = 'good good kept c1: kept  c2: kept ' ]; then pass 'C API'; else fail 'by the C API' m.out; fi
    # Beside others; a child has what its parent opened; a library that is none is refused.
    session --mount "plugin:dirview.so,$work/tree,upper:/up" --mount "plugin:dirview.so,$work/c2:/plain" --mount host:tree:/host -- bash -c '
        cat /up/f; cp /up/d/e/x /plain/y; cat /plain/y; exec 3</up/f; head -c 2 <&3; (cat <&3); ls /up; cmp /up/d/big /host/d/big; cd /up/d/e && pwd; echo /up/*
        echo new >/up/n; echo more >>/up/n; mv /up/n /up/d/m; cat /host/d/m; rm /up/d/m; "$0" mounts | grep -c plugin:' "$bypath" >m.out 2>m.err
    printf '%s\n' HELLO DEEP HELLO d f l /up/d/e '/up/d /up/f /up/l' new more 2 >k.out
    if cmp -s k.out m.out; then pass 'beside others'; else diff k.out m.out >what; cat m.err >>what; fail 'differs' what; fi
}

refused() {
    local spec
    mkdir refused && : >k.out
    for spec in 'fuse:false @:/direct' 'fuse:/nonexistent @:/direct' 'fuse:sleep 100 @:/direct,timeout=1' 'host:/nonexistent:/direct' 'fuse:true:/direct' "plugin:$here/use.sh:/direct"; do
        TMPDIR=$work/refused LIMIT=120 session --mount "$spec" -- true >m.out 2>&1
        [ $? -eq 1 ] && [ "$(grep -c ^bypath: m.out)" -eq 1 ] || { echo "$spec" >>k.out; cat m.out >>k.out; }
    done
    find "$work/refused" -mindepth 1 >>k.out
    if [ -s k.out ]; then fail 'not one clear line, or something is left' k.out; else pass; fi
}

[ $# -gt 0 ] || set -- host confined squashfuse bindfs background unionfs overlay passthrough asked static_examples by_socket gocryptfs rclone hostile archivemount sshfs s3fs together by_c killed restarted pages random plugin refused
for name; do "$name"; done
name=leftovers
# A program that ends without closing its namespace leaves an image's segment to the next user; the rest goes.
leftover=$(ls "$BYPATH_SEGMENT_DIR" | grep -E '^bypath-(ledger|channel|kept)-')
if [ -z "$leftover" ]; then pass; else fail "$leftover"; fi
echo "direct: $passed passed, $failed failed, $left_out left out"
[ "$failed" -eq 0 ]
