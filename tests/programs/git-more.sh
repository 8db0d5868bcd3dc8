#!/bin/bash
# needs: git
# ignore: /index$|/ORIG_HEAD$|/logs/|/config$|\.pack$|\.idx$|\.rev$|/FETCH_HEAD$|/COMMIT_EDITMSG$|/gitdir$|\.bundle$|/modules/|^\./w./\.git$|/multi-pack-index$|/commit-graph|/alternates$
# Conflicts, hooks in the tree, bundles, bare and shallow clones, submodules, sparse trees, several work trees, repacks.
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git config --global init.defaultBranch main
git config --global protocol.file.allow always
git config --global pack.threads 1
git config --global advice.detachedHead false
git config --global init.templateDir ''
git init -q r
cd r || exit
seq 30 >f
mkdir -p d/e
for i in 1 2 3 4 5; do echo $i >d/e/$i; done
git add .
git commit -qm one
git checkout -q -b side
sed -i 10s/.*/side/ f
git commit -qam side
git checkout -q main
sed -i 10s/.*/main/ f
git commit -qam main
git merge side
echo "exit $?"
git status -s
grep -c '<<<<' f
git checkout --theirs f
git add f
git commit -qm merged
git log --oneline --graph
git cherry-pick side~0 2>&1 | head -2
git cherry-pick --abort 2>/dev/null
git revert -m 1 --no-edit HEAD | head -1
sed -n 10p f
mkdir -p .git/hooks
printf '#!/bin/sh\necho hook ran >&2\ngit diff --cached --name-only >hooked\n' >.git/hooks/pre-commit
chmod +x .git/hooks/pre-commit
echo x >x
git add x
git commit -qm hooked
cat hooked
git stash -uq
ls hooked 2>&1
git stash pop -q
cat hooked
git bundle create -q ../b.bundle main side
git clone -q -b main ../b.bundle ../fromb 2>&1
git -C ../fromb rev-parse HEAD
git clone -q --bare . ../bare.git
git clone -q --depth 1 "file://$PWD/../bare.git" ../shallow
git -C ../shallow log --oneline | wc -l
git clone -q --local --no-hardlinks . ../nohard
git clone -q --shared . ../shared
git -C ../shared fsck --full
git worktree add -q ../w1 side
git worktree add -q -b third ../w2 main
(cd ../w1 && echo w1 >>f && git commit -qam w1)
(
    cd ../w2 && git merge -q -X ours side -m w2
    git log --oneline | wc -l
)
git worktree list | wc -l
git worktree remove --force ../w1
git worktree move ../w2 ../w3
git worktree prune
git branch -v | cut -c1-40
git -C ../nohard submodule --quiet add ../bare.git sub
git -C ../nohard commit -qm sub
git clone -q --recurse-submodules ../nohard ../super 2>/dev/null
ls ../super/sub
git -C ../super sparse-checkout set d
ls ../super
git repack -adq
git gc -q --prune=now
git count-objects -v | grep -E '^(count|packs)'
git multi-pack-index write
git commit-graph write --reachable 2>/dev/null
git fsck --full
git rebase -q -i --exec 'ls x' HEAD~1 2>&1 | tail -1
git rm -rq d
git reset -q --hard
git mv d dd
git diff --cached --stat | tail -1
git notes add -m note
git notes show
git for-each-ref --format='%(refname) %(objectname:short)'
