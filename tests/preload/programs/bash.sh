#!/bin/bash
# Redirections, here documents, process substitution, globs, subshells, pipes, cd.
set -e
echo one >a
echo two >>a
cat a
cat <a
wc -l a | awk '{print $1}'
cat <<END >b
here $((1 + 2))
END
cat b
read -r line <b
echo "$line"
exec 5<>c
echo through five >&5
cat c
exec 5>&-
{
    echo out
    echo err >&2
} >both 2>&1
cat both
mkdir -p d/e/f
cd d/e
pwd
cd f
pwd
cd ../..
pwd
cd "$OLDPWD"
pwd
cd "$1"
pwd -P
(cd d && echo in >x && ls)
ls d
echo *
echo d/*
shopt -s globstar
echo **
for i in 1 2 3; do echo $i; done | sort -r >sorted
cat sorted
diff <(echo x) <(echo y) || true
while read -r l; do echo "got $l"; done <a
[ -f a ] && [ -d d ] && [ ! -e nope ] && [ a -nt nope ] && echo tests
set -o noclobber
echo no >a || echo refused
echo yes >|a
cat a
set +o noclobber
f() {
    echo in a function >fn
    cat fn
}
f
printf '#!/bin/bash\necho script $# "$@"; exit 4\n' >s
chmod +x s
./s a 'b c' || echo "status $?"
PATH=$PWD:$PATH s by path || true
. ./b 2>/dev/null || echo cannot source
echo 'echo sourced' >src
. ./src
(
    exec >log 2>&1
    echo logged
    ls nope
) || true
cat log
echo background >bg &
wait
cat bg
trap 'echo trapped' USR1
kill -USR1 $$
echo after
mapfile -t lines <sorted
echo "${lines[1]}"
coproc { cat >co; }
echo to coproc >&"${COPROC[1]}"
eval "exec ${COPROC[1]}>&-"
wait
cat co
echo nope/none*
rm -r d
ls
cd /
echo "$OLDPWD"
cd - >/dev/null
pwd
