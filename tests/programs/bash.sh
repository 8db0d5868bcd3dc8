#!/bin/bash
# Redirections of every kind, here-documents, pipes, background jobs, globbing, cd, traps.
echo one >a
echo two >>a
cat <a
{
    echo out
    echo err >&2
} >both 2>&1
cat both
{
    echo out
    echo err >&2
} &>both2
cat both2
cat <<END >here
a here-document of $((1 + 2)) lines
END
cat here
cat <<<"a here-string"
big=$(head -c 200000 /dev/zero | tr '\0' x)
cat <<END | cksum
$big
END
exec 3>three
echo to three >&3
exec 3>&-
cat three
exec 4<>rw
echo hello >&4
cat rw
exec 4<&-
exec 5<a
read -r l <&5
echo "read $l"
read -r l <&5
echo "read $l"
read -r l <&5 || echo end
exec 5<&-
exec 6>shared
(echo child >&6)
echo parent >&6
exec 6>&-
cat shared
while read -r l; do echo "loop $l"; done <a >looped
cat looped
echo x | tee t1 t2 | cat - >t3
cat t1 t2 t3
set -C
echo no >a || echo noclobber
set +C
echo yes >|a
cat a
diff <(sort a) <(sort t1)
echo "diff $?"
tee >(cat >procsub) <a >/dev/null
until [ -s procsub ]; do sleep 0.01; done
cat procsub
mkdir -p d/e/f d/x
touch d/{1,2,3}.txt d/e/4.txt d/.hidden
echo d/*
echo d/?.txt
echo d/[!1].txt
echo d/.*
shopt -s globstar nullglob dotglob extglob
echo d/**
echo none*
echo d/!(1).txt
cd d/e/f
pwd
cd ..
pwd
cd -
cd ../../..
pwd
cd /
cd "$OLDPWD"
pwd
(cd d && echo in "${PWD##*/}" >here.txt)
cat d/here.txt
pushd d >/dev/null
pushd e >/dev/null
dirs -p | wc -l
popd >/dev/null
popd >/dev/null
{
    sleep 0.1
    echo late >bg
} &
wait $!
echo "bg $?"
cat bg
for i in 1 2 3; do echo "$i" >>parallel & done
wait
sort -o parallel parallel
cat parallel
[ -f a ] && [ -d d ] && [ ! -e none ] && [ -s a ] && [ a -nt none ] && echo tests
ln -s a link
[ -L link ] && [ -h link ] && [ link -ef a ] && echo links
[ -r a -a -w a ] && [ ! -x a ] && echo access
chmod +x a
[ -x a ] && echo now
cat >script <<'S'
#!/bin/bash
echo "script $0 $1 $#"; exit 7
S
chmod +x script
./script arg
echo "exit $?"
bash script
. ./here 2>/dev/null
echo "source $?"
printf 'echo sourced\n' >s
. ./s
source s
cat none 2>&1
echo "code $?"
>none/x
echo "code $?"
cd a
echo "code $?"
./here
echo "code $?"
mapfile -t lines <looped
echo "${#lines[@]}"
read -r -d '' all <looped
echo "$all"
coproc C { cat; }
echo through >&"${C[1]}"
read -r l <&"${C[0]}"
echo "$l"
eval "exec ${C[1]}>&-"
wait
ulimit -n 100
for i in $(seq 10 60); do eval "exec $i>fd$i"; done
echo fd60 >&60
for i in $(seq 10 60); do eval "exec $i>&-"; done
cat fd60
rm fd??
trap 'echo trapped; rm -f temp' EXIT
: >temp
type -t ls
command -v cat
hash -r
test -t 1 || echo no terminal
umask 027
: >masked
mkdir maskdir
umask
exec 7>a7 8>&7 9>&8
echo 7 >&7
echo 8 >&8
echo 9 >&9
exec 7>&- 8>&- 9>&-
cat a7
