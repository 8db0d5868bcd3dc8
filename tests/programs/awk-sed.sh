#!/bin/sh
# needs: awk sed
# Several files written by one awk, read back line by line, pipes; sed in place with and without a copy, `r` and `w`.
seq 200 >n
awk '{ print $1 * $1 > ("mod" $1 % 7) } END { for (i = 0; i < 7; i++) close("mod" i); while ((getline line < "mod3") > 0) s += line; print NR, s }' n
awk 'BEGIN { while ((getline x < "n") > 0) c++; print c; print (getline x < "none"); "ls mod* | wc -l" | getline k; print k; print "z\na" | "sort > sorted"; close("sort > sorted"); getline x < "sorted"; print x; print "more" >> "n"; close("n"); system("tail -1 n") }'
awk 'FNR == 1 { print FILENAME } END { print NR }' mod0 mod1 mod2
ln -s n link
ln n hard
chmod 640 n
sed -i 's/^1$/one/; 2d' n
echo "exit $?"
head -2 n
stat -c '%h %a' n hard
wc -l <hard
sed -i.bak '$d' link
ls -F link link.bak | cat
readlink link.bak
sed -i --follow-symlinks 's/3/three/' n
sed -n '1,5p;7q' n
sed -i -e '5r sorted' -e '/7/w sevens' n
sed -n '4,8p' n
wc -l sevens
sed -s -n '$=' mod*
sed -i '1i\first' mod*
head -qn1 mod* | sort | uniq -c
sed -i p none
echo "exit $?"
sed -i p tmp
echo "exit $?"
sed -n w/dev/stdout sorted
sed --in-place='b/*' 1d mod1
echo "exit $?"
mkdir b
sed --in-place='b/*' 1d mod1
ls b
