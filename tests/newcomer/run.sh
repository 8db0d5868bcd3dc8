#!/bin/bash
# A newcomer's first minutes: in a bare Debian an ordinary user, who has neither network nor /dev/fuse, installs the wheel, and
# runs programs in `bypath run --mount new:1G:/bp`. What they say and leave behind must be what it is on tmpfs.
#
#   run.sh PACKAGES WORK [SUITE…]      PROGRAMS='names' runs these alone, SHOW=1 prints what they say
#
# PACKAGES is what `make dist` has made. WORK keeps a tree for each suite (bookworm, trixie), which debootstrap makes, and
# static programs from Python's and npm's registries: root, network, some minutes and 2 GB the first time. Slow, not in CI.
set -u
tests=$(realpath "$(dirname "$0")/..")
packages=$(realpath "$1") || exit 2
mkdir -p "$2" && work=$(realpath "$2") || exit 2
shift 2
[ $# -gt 0 ] || set -- bookworm trixie
# What a user of such a machine would have, of Debian's.
installed=ca-certificates,git,python3-venv,python3-pip,make,gcc,g++,libc6-dev,musl-tools,busybox-static,golang-go,cargo,ripgrep
# The programs of tests/programs that are run here; those beside this script come with them.
borrowed='git python-venv make-gcc busybox go uv cargo'
failed=0

if [ "$(id -u)" -ne 0 ] || ! unshare -mn --propagation private true; then
    echo 'skip newcomer: not root, or no namespaces: LEFT OUT, not passed'
    exit 0
fi

# Static programs that people install.
statics() {
    mkdir -p "$work/given" && cd "$work/given" || return
    ls uv-*manylinux*.whl >/dev/null 2>&1 || pip download -q --no-deps -d . uv
    ls uv-*musllinux*.whl >/dev/null 2>&1 || pip download -q --no-deps --only-binary=:all: --platform musllinux_1_1_x86_64 -d . uv
    ls esbuild-*.tgz >/dev/null 2>&1 || npm pack --silent @esbuild/linux-x64
    ls biomejs-*.tgz >/dev/null 2>&1 || npm pack --silent @biomejs/cli-linux-x64-musl
}
statics >/dev/null 2>&1 || echo 'skip newcomer: some of uv, esbuild and biome cannot be had here: NOT tested'

tree() { # SUITE
    [ ! -e "$work/$1/complete" ] || return 0
    rm -rf "${work:?}/$1"
    timeout 1800 debootstrap --variant=minbase --include="$installed" "$1" "$work/$1" >"$work/$1.log" 2>&1 && touch "$work/$1/complete"
}

# The tree with what is given on top of it; all mounts, and what was written, end with it.
in_tree() { # SUITE COMMAND
    unshare -mn --propagation private bash -c '
        set -e
        work=$1 root=$1/root
        mkdir -p "$work/over" "$root"
        mount -t tmpfs -o size=4G t "$work/over"
        mkdir "$work/over/up" "$work/over/work"
        mount -t overlay -o "lowerdir=$work/$2,upperdir=$work/over/up,workdir=$work/over/work" o "$root"
        mount --rbind /proc "$root/proc"
        mount -t tmpfs -o mode=755 t "$root/dev"
        for node in null zero full random urandom tty; do
            touch "$root/dev/$node"
            mount --bind "/dev/$node" "$root/dev/$node"
        done
        ln -s /proc/self/fd "$root/dev/fd"
        mkdir "$root/dev/shm" "$root/given" "$root/given/programs"
        mount -t tmpfs -o size=4G,mode=1777 t "$root/dev/shm"
        chmod 1777 "$root/tmp"
        cp "$3"/bypath-*.whl "$work"/given/* "$root/given/"
        cp "$4"/newcomer/inside.sh "$root/given/"
        for name in $5; do cp "$4/programs/$name.sh" "$root/given/programs/"; done
        cp "$4"/newcomer/programs/* "$root/given/programs/"
        exec chroot "$root" setpriv --reuid 1000 --regid 1000 --clear-groups \
            env -i PATH=/usr/bin:/bin LC_ALL=C TZ=UTC PROGRAMS="$6" SHOW="$7" sh /given/inside.sh' \
        bash "$work" "$1" "$packages" "$tests" "$borrowed" "${PROGRAMS:-}" "${SHOW:-}"
}

for suite; do
    if tree "$suite"; then
        echo "== newcomer, $suite"
        in_tree "$suite" || failed=1
    else
        tail -2 "$work/$suite.log"
        echo "skip newcomer: the tree of $suite cannot be made: LEFT OUT, not passed"
    fi
done
exit $failed
