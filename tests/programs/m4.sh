#!/bin/sh
# needs: m4
# Includes, diversions that go to files of its own, children, frozen state.
echo 'define(`twice'"'"', `$1$1'"'"')dnl' >lib.m4
seq 30000 >big
printf 'include(`lib.m4'"'"')twice(ab)\ndivert(1)undivert(`big'"'"')divert(2)include(`big'"'"')divert(0)first\nsyscmd(`echo child >made; cat made'"'"')esyscmd(`ls lib.m4'"'"')sysval\nlen(mkstemp(`xXXXXXX'"'"'))sinclude(`none'"'"')\n' >in.m4
m4 in.m4 >out
echo "exit $?"
cksum out
head -4 out
m4 -F frozen lib.m4
echo 'twice(z)' | m4 -R frozen
echo 'include(`none'"'"')' | m4 2>/dev/null
echo "exit $?"
mkdir inc
mv lib.m4 inc
echo 'include(`lib.m4'"'"')twice(path)' | m4 -I inc
rm big frozen out
ls x?????? | wc -l
rm x??????
