# IMG and IMG: alone are the root of an image for every verb that takes a path in it; ls and stat take several, ls -h works.
# own
. "$(dirname "$0")/own.sh"
fails() { echo "$1" && exit 1; }
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir -p t/d && echo one >t/d/f && head -c 1536 /dev/zero >t/g
"$bypath" import -q t/d i.img:/d && "$bypath" import -q t/g i.img:/g || fails import
for place in i.img i.img: i.img:/; do
    [ "$("$bypath" ls $place)" = "$(printf 'd\ng')" ] || fails "ls $place"
    "$bypath" stat $place | grep -q 'File: /$' || fails "stat $place"
    rm -rf out && "$bypath" export -q $place out && [ -f out/d/f ] || fails "export $place"
done
[ "$("$bypath" ls i.img:/g i.img:/d)" = "$(printf '/g\n\ni.img:/d:\nf')" ] || fails "several: $("$bypath" ls i.img:/g i.img:/d)"
"$bypath" ls -lh i.img:/g | grep -q ' 1.5K ' || fails "ls -lh: $("$bypath" ls -lh i.img:/g)"
"$bypath" ls --json i.img:/d i.img:/g | grep -q '"/d/f"' || fails "json of several"
[ "$("$bypath" ls --json i.img:/d | grep -c '"f"')" -eq 1 ] || fails "json of one"
"$bypath" ls --help | grep -q Usage || fails "help"
"$bypath" ls nothing.img 2>&1 | grep -q 'lies in no image' || fails "no image"
