# GNU coreutils' own tests, of Debian's source, but for those of programs that touch no file (factor, pr, fmt, id).
build() {
    [ -e "$1/list" ] && return
    if [ ! -d "$1/source" ]; then
        mkdir -p "$1" && (cd "$1" && apt-get source -q coreutils && mv coreutils-*/ source) || return
    fi
    (
        cd "$1/source" && unset MAKEFLAGS MFLAGS MAKEOVERRIDES &&
            FORCE_UNSAFE_CONFIGURE=1 ./configure -q --disable-nls && make -s -j2 all &&
            make -pn 2>/dev/null | sed -n 's/^all_tests = //p' | tr ' ' '\n' | grep -v '/factor/\|tests/pr/\|tests/fmt\|tests/id/\|^\.\|^$' |
            sort -u >../list.new && [ -s ../list.new ] && mv ../list.new ../list
    )
}

verdicts() { # BUILT PLACE OUT
    # The tests make their directories where they are started; the programs are those outside.
    cp -a "$1/source" "$2/copy" && cd "$2/copy" || return
    make -k -j2 check-TESTS TESTS="$(tr '\n' ' ' <"$1/list")" NON_ROOT_USERNAME=nobody >"$3.out" 2>&1
    # Names of tests, as the summary says them.
    sed -n 's/^\(PASS\|SKIP\|FAIL\|ERROR\|XFAIL\): \(tests\/[^ ]*\.[a-z]*\)$/\2 \1/p' "$3.out" | sed 's/ PASS$/ pass/' | sort -u >"$3"
}
