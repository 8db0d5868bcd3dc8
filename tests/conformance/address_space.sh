# Where the address space is limited to less than an image takes: a program still executes others, a line says why they are
# not served, and beside a kernel mount they are.
# own
. "$(dirname "$0")/own.sh"
fails() { echo "$1" && exit 1; }
"$bypath" mkfs i.img --size 1G >/dev/null
mkdir m
limited='ulimit -v 600000; cd m; echo text >f; cat f; cp f g; /bin/true && echo done; /bin/cat g'
said=$("$bypath" run --no-fuse -m "i.img:$PWD/m" -- sh -c "$limited" 2>&1)
case $said in *"cannot be mapped: ENOMEM"*) ;; *) fails "no reason given: $said" ;; esac
case $said in *done*) ;; *) fails "not executed: $said" ;; esac
[ -c /dev/fuse ] || { echo "skip: no /dev/fuse" && exit 0; }
said=$("$bypath" run -m "i.img:$PWD/m" -- sh -c "$limited" 2>&1)
[ "$said" = "$(printf 'text\ndone\ntext')" ] || fails "beside a kernel mount: $said"
