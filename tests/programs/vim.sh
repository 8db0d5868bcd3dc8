#!/bin/sh
# needs: vi
# Files edited without a screen: backup, swap file, undo file, several buffers, a filter, one that may not be written.
export TERM=dumb
seq 20 >a
ln a hard
chmod 640 a
ln -s a sym
printf 'two\nlines\n' >b
vim=$(command -v vim || command -v vim.tiny || echo vi)
v() {
    $vim -u NONE -i NONE -es -N "$@" </dev/null
    echo "exit $?"
}
v -c '%s/1/one/g' -c '3d' -c wq a
head -4 a
stat -c '%h %a' a
v -c 'set backup backupdir=. backupcopy=no' -c 'normal Gothe end' -c wq sym
tail -1 a
ls -F | cat
v -c 'set backup backupcopy=yes backupext=.old' -c '1d' -c wq b
cat b b.old
v -c 'r a' -c '2,5!sort -r' -c 'w! new' -c q! b
cat new | head -5
v -c 'args a b' -c 'argdo %s/o/0/ge | update' -c qa
cksum a b
mkdir undo
v -c 'set undofile undodir=undo' -c '1d' -c wq new
ls undo | wc -l
v -c 'set undofile undodir=undo' -c 'rundo undo/none' -c q new
rm -r undo
v -c 'w none/x' -c q! a
v -c 'e b' -c 'saveas c' -c '$d' -c x
ls
v -c 'set ff=dos fenc=utf-16' -c wq c
od -c c | head -3
v -R -c 'normal x' -c w -c q! b
v -c 'split a | vsplit b' -c 'windo 1d' -c wqa c
cksum a b c
v -n -c 'call writefile(["x", "y"], "made")' -c 'call mkdir("p/q", "p")' -c 'call rename("made", "p/q/m")' -c 'call writefile(glob("p/**", 0, 1), "list")' -c q
cat list
