#!/bin/bash
# find, xargs: tests, actions, pruning, deletion.
mkdir -p a/b/c a/d 'with space' e
touch a/1 a/b/2 a/b/c/3 'with space/x y' .hid
echo text >a/d/t
ln -s ../a e/loop
ln a/1 e/hard
mkfifo e/p
chmod 600 a/1
chmod 755 a/b/2
touch -d '2000-01-01' a/old
f() { find "$@" | sort; }
f .
f . -type f
f . -type d
f . -type l
f . -type p
f . -name '*1*'
f . -iname 'X*'
f . -path '*/b/*'
f . -regex '.*/[0-9]'
f -L . -maxdepth 2 -type d 2>&1
f . -maxdepth 1
f . -mindepth 3
f . -depth
f . -prune
f . -name b -prune -o -type f -print
f . -empty
f . -size +0c -type f
f . -size 0
f . -perm 600
f . -perm -u+x -type f
f . -links 2
f . -newer a/old -type f
f . -mtime +100
f . -user root -name 1
f . -uid 0 -name 1
f . -readable -name t
f . -executable -type f
f . -samefile a/1
f . -inum "$(stat -c %i a/1)"
f . -lname '../*'
f . -xtype d
f . -not -name '*1*' -type f
find . -type f -printf '%p %s %m %n %y %d %f %h\n' | sort
find . -type f -exec echo one {} \; | sort
find . -type f -exec echo {} + | tr ' ' '\n' | sort
find . -name t -execdir pwd \;
find . -name t -execdir cat {} \;
find a -ls | awk '{ print $3, $4, $11 }' | sort
find . -print0 | sort -z | xargs -0 -n 3 echo
find . -name '[0-9]' | sort | xargs -I{} echo '<{}>'
seq 20 | xargs -n 7 -P 2 echo | sort
find . -name '[0-9]' -print0 | xargs -0 -r ls -1 | sort
xargs -a a/d/t echo
echo | xargs -r echo never
printf 'a\nb\n' | xargs sh -c 'exit 3'
echo "code $?"
find . -name '[0-9]' -ok true \; </dev/null 2>/dev/null
find none
echo "code $?"
find a -name 3 -delete
find a/b -delete
echo "code $?"
f .
find . -type f -newermt 2010-01-01 -quit
find e -fprint list
sort -o list list
cat list
mkdir many
(cd many && seq 3000 | xargs touch)
find many -type f | wc -l
find many -name '*7' -delete
find many -type f | wc -l
find many -mindepth 1 -exec rm {} +
rmdir many
