# What every writable file system must do alike: run in a fresh directory of each,
# and beside it in one of the kernel's; the output is compared.
echo hello >f && cat f
mkdir -p a/b/c && echo deep >a/b/c/d && cat a/b/c/d && (cd a/b && pwd | sed 's|.*/\(a/b\)$|\1|' && cat c/d && ls ..)
mv a/b a/e && cat a/e/c/d && ls -R a
mv f a/g && cat a/g && ls
rmdir a 2>/dev/null || echo 'not empty'
mkdir a 2>/dev/null || echo exists
cat none 2>/dev/null || echo absent
mv a a/e/x 2>/dev/null || echo 'into itself'
seq 20000 >n && wc -c n && cksum n && tail -1 n && head -c 100 n | cksum
echo more >>n && wc -c n && truncate -s 1000 n && wc -c n && cksum n
dd if=n of=n bs=1 seek=5000 count=3 conv=notrunc 2>/dev/null && wc -c n && cksum n
chmod 640 n && stat -c '%a %s %F' n && chmod 444 n && stat -c %a n
touch -d '2001-02-03 04:05:06 UTC' n && stat -c %Y n
cp n m && cmp n m && echo same
(for i in 1 2 3 4; do (for j in 1 2 3 4 5 6 7 8 9; do echo "$i$j" >>log; done) & done; wait) && sort log | cksum && rm log
for i in $(seq 300); do echo "$i" >"many-$i"; done && ls | wc -l && cat many-* | sort -n | cksum && rm many-*
exec 3<m && rm m && head -c 10 <&3 | cksum && exec 3<&-
find . -type f | sort | while read -r file; do cksum "$file"; done
rm -r a && ls
(umask 027 && mkdir u && : >v && stat -c '%a %n' u v)
