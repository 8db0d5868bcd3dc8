#!/bin/sh
# needs: borg
# seconds: 240
# Archives of a tree, one in a repository of its own user's: made, listed, taken out, thinned, checked; FIFOs are read as they are.
export BORG_BASE_DIR=$PWD/home BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
mkdir -p tree/sub home
seq 100000 >tree/big
for i in $(seq 50); do echo "$i" >tree/sub/$i; done
ln -s big tree/link
ln tree/big tree/hard
mkfifo tree/fifo
chmod 640 tree/sub/1
touch -d 2001-02-03T04:05:06 tree/sub/2
borg init -e none repo
# So that an image of half a gigabyte is large enough to thin it out.
borg config repo max_segment_size 10000000
borg create repo::one tree
echo more >>tree/big
rm tree/sub/3
borg create repo::two tree
borg list --short repo
# Which name of a file comes first is the directory's affair.
borg list --format '{mode} {size} {path}{NL}' repo::two | grep -v 'tree/big\|tree/hard' | sort
borg diff --sort repo::one repo::two | grep -v 'tree/big\|tree/hard' | sed 's/^ *//'
mkdir out && cd out && borg extract ../repo::one && cd ..
diff -r tree out/tree 2>&1 | grep -v fifo
stat -c '%n %a %h %Y' out/tree/sub/1 out/tree/hard out/tree/sub/2 | sed 's/ [0-9]*$//' | head -2
stat -c %Y out/tree/sub/2
borg delete repo::one
borg compact repo
borg check repo && echo checked
borg prune --keep-last 1 repo
borg export-tar repo::two - 2>/dev/null | tar t | sort | cksum
borg with-lock repo echo locked
rm -rf repo home
