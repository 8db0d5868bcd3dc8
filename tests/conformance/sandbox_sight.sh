# A sandbox that does not see a directory of the kernel's, or an image, takes nothing from the session's other programs.
# own
# needs: bwrap
. "$(dirname "$0")/own.sh"
mkdir /dev/shm/low
at=$PWD/at
cat >inside <<'S'
mkdir -p "$1/d" && cd "$1/d" && echo input >in || exit
bwrap --bind / / --dev /dev --proc /proc cat "$1/d/in" 2>/dev/null && echo 'it was seen'
cat in && cat <in && cat "$1/d/in" && ls
S
[ "$("$bypath" run --no-fuse --mount "host:/dev/shm/low:$at" -- bash inside "$at" 2>&1)" = "$(printf 'input\ninput\ninput\nin')" ] || fail "host: $("$bypath" run --no-fuse --mount "host:/dev/shm/low:$at" -- bash inside "$at" 2>&1)"
"$bypath" mkfs /dev/shm/i --size 64M >/dev/null
got=$("$bypath" run --no-fuse --mount "/dev/shm/i:$at" -- bash inside "$at" 2>&1)
[ "$got" = "$(printf 'input\ninput\ninput\nin')" ] || fail "image: $got"
