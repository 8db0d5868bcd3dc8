#!/bin/bash
# Each common tool of coreutils.
run() {
    "$@"
    local code=$?
    [ $code -eq 0 ] || echo "[$code] $1"
}
seq 1 2000 >n
head -c 300000 /dev/zero | tr '\0' 'z' >z
printf 'b\na\nc\na\n' >s
run cat n z s | cksum
run tac s
run nl s
run od -c s
run base64 s
run base32 s
run fold -w 10 z | wc
run fmt s
run pr -t s
run head -n 3 n
run tail -n 3 n
run tail -c 5 n
run split -l 700 n part.
ls part.*
cat part.* | cmp - n
run csplit -s n 500 1000
ls xx*
run wc n s z
run sum s
run cksum s
run md5sum s
run sha1sum s
run sha256sum s n >sums
run sha256sum -c sums
run b2sum s
run sort s
run sort -u -o sorted s
cat sorted
run sort -rn n | head -2
run sort -S 64K --parallel=1 -T tmp n n n n | cksum
run shuf -n 3 --random-source=z n
run uniq -c sorted
run comm sorted sorted
run ptx s | head -3
run tsort <<<"a b"
run cut -c1 s
run paste s s
run join sorted sorted
run tr a-c A-C <s
run expand s
run unexpand -a s
run rev s 2>/dev/null || true
run mkdir -p d/e -m 750
run cp n d/
run cp -p s d/e/
run cp -a d d2
run cp -r d d3
run cp --sparse=always z zs
cmp z zs
run cp -l n hard
run cp -s "$PWD/n" soft
run cp --reflink=auto n clone
run cp -n s n
touch -d @1000000000 d/e/s
run cp -u d/e/s n
run cp -b s sorted
ls sorted*
run mv d2 d4
run mv d3/n d4/nn
run mv -n s d4
run mv -T d4 d5
run mv n moved
run mv moved d5/
run mv d5/moved n
ls -R
run ln n link
run ln -s n sym
run ln -sf s sym
run ln -s none dangling
run readlink sym
run readlink -f sym
run realpath d/../n
run link n link2
run unlink link2
run basename d/x.c .c
run dirname d/x
run install -m 700 n inst
run install -d i/j/k
run install -D n i/l/n
stat -c '%n %a %F %s %h %U %G' inst i/j sym d/e/s
run touch t
run touch -d '2001-02-03 04:05:06.789 UTC' t
stat -c '%y' t
run touch -r t u
stat -c %y u
run touch -h -d @0 sym
stat -c %Y sym
run touch -c nothere
run date -r t +%s
run chmod 640 t
run chmod u+x,g-r t
run chmod -R g+w d
run chown 1:2 t
run chgrp 3 t
run chown -h 5 sym
stat -c '%n %a %u %g' t sym d/e
run chmod +t d
run chmod g+s d
mkdir d/inherits
stat -c '%a %g' d d/inherits
ls -l --time-style=+ t
ls -la --time-style=+ d | sed 's/^total.*//'
ls -i n link | awk '{ print $1 }' | uniq | wc -l
ls -F
ls -S | head -3
ls -1 -t | head -1
ls -d .
ls none
run dir d
run vdir --time-style=+ t
run du -a d | sort
run du -sb n
run stat -c '%b %B' n z
run stat -f -c '%l %S' n
run truncate -s 5 t
run truncate -s +3 t
run wc -c t
run truncate -s 10M hole
run du -k hole
run fallocate -l 64K fa 2>/dev/null
wc -c fa
run dd if=n of=dd bs=100 count=3 skip=1 seek=2 conv=notrunc status=none
run od -A d -c dd | head -3
run dd if=z of=dd2 bs=64k oflag=append conv=notrunc,fsync status=none
cmp z dd2
run mkfifo p
(echo through >p &)
cat p
run mknod p2 p
stat -c %F p p2
run sync n
run sync
run shred -n 1 -u fa
run tee t1 t2 <s
cmp t1 t2
run mktemp -p . -u XXXX | wc -c
m=$(mktemp -d -p .)
rmdir "$m"
m=$(mktemp -p .)
test -f "$m" && rm "$m"
run rmdir d/inherits
run rmdir d
run rmdir -p i/j/k
run rm n none
run rm -f none
run rm -r d
run rm -rf d5
run rm d3
yes | head -2
run test -e s
run [ s -nt t ]
run pwd
run df --output=target . >/dev/null
run numfmt 5 <s | head -1
run env -C tmp pwd
run timeout 5 cat s
run nice cat s
run nohup cat s 2>/dev/null
run stdbuf -oL cat s
run chroot --version >/dev/null
run dircolors s >/dev/null
run pathchk -p s
run cp /etc/passwd outside
cmp outside /etc/passwd
run cp s /dev/null
run cp -a /usr/share/misc misc
run cmp s none
