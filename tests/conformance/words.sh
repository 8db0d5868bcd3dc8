# What the command says and does in places where new users stumbled.
# own
. "$(dirname "$0")/own.sh"
fails() { echo "$1" && exit 1; }
"$bypath" mkfs 'with space.img' --size 16M | grep -q "run --mount 'with space.img:/bp'" || fails "not quoted"
"$bypath" mkfs i.img --size 64M >/dev/null
echo one >f && mkdir d && "$bypath" import -q d i.img:/d || fails "import"
"$bypath" import -q f i.img:/d && [ "$("$bypath" cat i.img:/d/f)" = one ] || fails "a file into a directory"
truncate -s 4G i.img && "$bypath" info i.img | grep -q 'may grow to 64 MiB' || fails "the limit is the image's, not the file's"
cp i.img broken.img && dd if=/dev/zero of=broken.img bs=4096 count=1 conv=notrunc status=none
"$bypath" check broken.img | grep -q 'cannot be used: it does not begin as an image does' || fails "$("$bypath" check broken.img)"
chmod 755 . && chmod 600 i.img && cp "$bypath" "$(dirname "$bypath")"/libbypath_preload.so . && chmod 755 bypath
if said=$(setpriv --reuid 65534 --clear-groups ./bypath run --no-fuse -m "$PWD/i.img:/x" -- true 2>&1); then fails "not refused"; fi
case $said in *"may neither read nor write"*) ;; *) fails "$said" ;; esac
[ -c /dev/fuse ] || { echo "skip: no /dev/fuse" && exit 0; }
mkdir m && "$bypath" mount i.img m || fails "mount"
"$bypath" mount i.img m 2>&1 | grep -q 'already mounted there' || fails "mounted twice"
"$bypath" umount m
