#!/bin/sh
# A small history, branches, a merge, a clone.
command -v git >/dev/null || {
    echo skip: no git
    exit
}
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' HOME=$1 GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main r && cd r
git status
mkdir d
for i in 1 2 3 4 5; do echo "line $i" >d/f$i; done
git status --short
git add .
git status --short
git commit -qm first
git log --oneline
git status
echo more >>d/f1
rm d/f2
git status --short
git diff
git add -A
git commit -qm second
git rev-parse HEAD
git log --stat --format=%s
git checkout -q -b side HEAD~1
echo side >s
git add s
git commit -qm side
git checkout -q main
git merge -q -m merged side 2>&1
git log --oneline --graph | cat
ls -R .
git mv d/f3 d/g3
git commit -qm moved
git show --stat --format=%s HEAD
git stash list
echo dirty >>d/f4
git stash -q
cat d/f4
git stash pop -q
git checkout d/f4 2>&1
git tag v1
git gc -q 2>&1
git fsck 2>&1
git log --oneline | wc -l
cd ..
git clone -q r c 2>&1
cd c
git log --oneline
git status
git grep line | sort
git blame -s d/f1 | cut -d' ' -f2-
cd ..
git -C r archive HEAD | tar tf - | sort
cat r/.git/HEAD
git -C c pull -q 2>&1
git -C c config user.x y
git -C c config user.x
git -C r worktree add -q ../w 2>&1
ls w
git bundle create -q b.bundle HEAD 2>&1 | head -1
git -C r reset -q --hard HEAD~1
git -C r reflog | wc -l
