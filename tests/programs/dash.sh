#!/bin/dash
# needs: dash
# The same ground in the small shell, which uses vfork and its own descriptor habits.
echo one >a
echo two >>a
cat a
cat <a | cat >b
cmp a b && echo same
cat <<END
here $((6 * 7))
END
cat <<'END' >quoted
$not expanded
END
cat quoted
exec 3>c
echo three >&3
ls none 2>&3
exec 3>&-
cat c
exec 4<a
read x <&4
echo "$x"
read x <&4
echo "$x"
exec 4<&-
(
    echo sub
    exit 3
) >d
echo "$?"
cat d
{
    echo group
    echo err >&2
} >e 2>&1
cat e
mkdir -p x/y
cd x/y
pwd
echo in >f
cd ../..
cat x/y/f
pwd
for f in x/* x/y/* n*; do echo "$f"; done
ls x | while read f; do echo "got $f"; done
echo bg >g &
wait
cat g
set -C
(echo no >a) 2>/dev/null || echo noclobber
set +C
[ -f a ] && [ -d x ] && [ ! -e none ] && echo tests
printf '#!/bin/sh\necho script "$@"\nexit 5\n' >s
chmod 755 s
./s a b
echo "$?"
. ./s
echo unreached
