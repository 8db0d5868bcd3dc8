#!/bin/dash
# What configure scripts do: vfork, redirections, tests, here documents.
echo one >a && cat a && cat <a
exec 3>t
echo three >&3
exec 3>&-
cat t
exec 4<a
read x <&4
echo "$x"
exec 4<&-
mkdir conf$$ && cd conf$$ && echo '#define X 1' >confdefs.h && cat confdefs.h && cd .. && rm -rf conf$$
(
    echo a
    echo b
) | (
    read p
    read q
    echo "$q$p"
) >o
cat o
if test -f a -a -r a -a -s a; then echo file; fi
test -x a || echo not executable
cat >h <<E2
$(
    echo nested
    cat a
)
E2
cat h
for f in *; do echo "f $f"; done
ln -s a l
test -h l && cat l
cd . && pwd
echo x >>a
echo y 1>&2 2>e
cat e
: >empty
ls -s empty | cut -d' ' -f2
umask
umask 077
echo p >p
ls -l p | cut -c1-10
eval 'echo evaled >ev'
cat ev
command -v ls
ls nope 2>&1
cat nope 2>&1
echo $?
sleep 0.05 &
wait $!
echo waited
set -- *
echo $#
