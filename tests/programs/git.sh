#!/bin/bash
# needs: git
# ignore: /index$|/ORIG_HEAD$|/logs/|/config$|\.pack$|\.idx$|\.rev$|\.mtimes$|/gitdir$|^\./w/\.git$|/FETCH_HEAD$
# seconds: 300
# The daily calls of git on a real tree.
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git -c init.defaultBranch=main init -q r
cd r || exit
git config pack.threads 1
git status -s
cp -r /usr/include/linux inc
ls inc | wc -l
echo '*.o' >.gitignore
touch x.o
git status --short | head
git add .
git status -s | wc -l
git commit -qm first
git log --format='%H %s %an'
git status
echo change >>inc/a.out.h
git diff --stat
git diff | tail -3
git commit -qam second
git rev-parse HEAD
git checkout -q -b topic
git mv inc/aio_abi.h inc/renamed.h
git rm -q inc/acct.h
echo new >new
git add new
git status -s
git commit -qm third
git checkout -q main
ls inc | wc -l
ls new
echo main >m
git add m
git commit -qm fourth
git merge -q -m merged topic
git log --oneline --graph
git branch -a
git show --stat HEAD | tail -3
git stash list
echo dirty >>m
git stash -q
git stash pop -q
git diff --shortstat
git checkout -q -- m
git reset -q --hard HEAD~1
git tag v1
git describe --tags
git grep -c define inc/types.h
git ls-files | wc -l
git cat-file -p HEAD^{tree} | head -3
git blame new 2>&1 | tail -1
git clean -fdxn
git clean -fdxq
git gc -q
git fsck --full
git count-objects | cut -d' ' -f1
git clone -q . ../clone
cd ../clone
git log --oneline | wc -l
git status -s
echo more >more
git add more
git commit -qm five
git push -q origin HEAD:refs/heads/pushed
cd ../r
git log --oneline pushed | head -1
git worktree add -q ../w topic
ls ../w | sort
git worktree list | wc -l
git archive --format=tar HEAD | tar -t | wc -l
git rebase -q main topic 2>&1 | head -3
git bisect start -q HEAD v1 2>/dev/null
git bisect reset -q 2>/dev/null
git config user.x y
git config user.x
git reflog | wc -l
git apply --check /dev/null
echo $?
git submodule status
git format-patch -1 --stdout | wc -l
cat .git/HEAD
