#!/bin/bash
# own
# needs: python3
# seconds: 120
# What a file or a tree takes: `bypath info IMG:/path` and `bypath stat` tell what is its own from what others have too, by an
# image's path and by the path at which it is seen; a file with several names counts once, holes not at all.
set -u
. "$(dirname "$0")/own.sh"
failed=0
an_image 64M
json() { python3 -c 'import json, sys; d = json.load(sys.stdin); print(*[d.get(key, "-") for key in sys.argv[1:]])' "$@"; }
taken() { "$bypath" info --json "$I:$1" | json names own shared; }
stat_of() { "$bypath" stat --json "$I:$1" | json own shared; }

in_session bash -c 'cd m && mkdir -p main/sub && head -c 40960 /dev/urandom >main/large && head -c 100 /dev/urandom >main/sub/small &&
    ln main/large main/sub/second && truncate -s 1M main/hole && ln -s large main/link && mkfifo main/fifo' || fail fill
same 'before a clone' "$(taken /main)" "8 45056 0"
same 'a file' "$(stat_of /main/large)" "40960 0"
same 'a directory' "$(stat_of /main)" "- -"
"$bypath" clone -q "$I:/main" "$I:/copy" || fail clone
same 'of two' "$(taken /main) $(taken /copy)" "8 0 45056 8 0 45056"
same 'of all' "$(taken /)" "17 0 90112"
in_session bash -c 'echo x | dd of=m/copy/large bs=1 seek=5000 conv=notrunc status=none' || fail write
same 'a block broken apart' "$(taken /copy) $(stat_of /copy/large) $(taken /copy/sub/second)" "8 4096 40960 4096 36864 1 4096 36864"
same 'by the path where it is seen' "$(in_session "$bypath" info --json m/copy | json path names own shared)" "$work/image:/copy 8 4096 40960"
"$bypath" info "$I:/copy" >said && "$bypath" stat "$I:/copy/large" >>said || fail text
grep -q '^own  *4 KiB, ' said && grep -q '^shared  *40 KiB, ' said && grep -q 'Space: 4096 its own, 36864 that' said || { cat said && failed=1; }
"$bypath" drop -q "$I:/main" || fail drop
same 'the only one left' "$(taken /copy) $(stat_of /copy/large)" "8 45056 0 40960 0"
"$bypath" info "$I:/main" 2>said && fail 'what is not there'
grep -qi 'no such file' said || { cat said && failed=1; }
same 'an image alone is one' "$("$bypath" info --json image | json image path)" "image -"
exit $failed
