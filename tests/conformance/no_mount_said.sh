# Whoever starts a session at a terminal is told that there is no kernel mount, and why; nobody else is.
# own
# needs: script
. "$(dirname "$0")/own.sh"
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir there
at_terminal() { script -qec "$*" /dev/null </dev/null | tr -d '\r'; }
fails() { echo "$1" && exit 1; }
said=$(at_terminal "$bypath run -m i.img:$PWD/nowhere -- true")
case $said in *"no kernel mount at $PWD/nowhere: it is no directory (mkdir $PWD/nowhere"*) ;; *) fails "not said: $said" ;; esac
# Static programs are served all the same, where the kernel hands their calls back.
if "$bypath" doctor | grep -q 'system call dispatch *there'; then
    case "$said$("$bypath" run --help)" in *'static and set-uid'*) fails "static programs need no kernel mount here: $said" ;; esac
fi
[ "$(echo "$said" | wc -l)" -eq 1 ] || fails "more than a line: $said"
[ -z "$(at_terminal "$bypath run --no-fuse -m i.img:$PWD/nowhere -- true")" ] || fails "said where no mount was wanted"
[ -z "$("$bypath" run -m "i.img:$PWD/nowhere" -- true 2>&1)" ] || fails "said without a terminal"
if [ -c /dev/fuse ]; then
    [ -z "$(at_terminal "$bypath run -m i.img:$PWD/there -- true")" ] || fails "said beside a mount"
fi
