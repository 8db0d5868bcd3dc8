# CPython's tests of files, processes and sockets, of Debian's package for its own python3.
cpython_modules='asyncio asyncore bufio bz2 cgi cmd_line cmd_line_script codecs compileall concurrent_futures configparser csv dbm
    dbm_dumb dbm_gnu ensurepip epoll faulthandler fcntl file filecmp fileinput fileio fork1 genericpath glob gzip
    http_cookiejar httpservers import importlib io ioctl largefile linecache logging lzma mailbox marshal mimetypes mmap
    multiprocessing_fork multiprocessing_forkserver multiprocessing_main_handling multiprocessing_spawn netrc openpty os pathlib
    pickle pipes pkgutil poll popen posix posixpath pty py_compile pyclbr pydoc resource runpy select selectors shelve shutil
    signal site socket socketserver sqlite3 stat subprocess tarfile tempfile threading tokenize trace tracemalloc unicode_file
    unicode_file_functions univnewlines urllib uuid venv wait3 wait4 zipapp zipfile zipimport'

build() {
    python=$(ls /usr/bin/python3.[0-9]* | grep -x '.*/python3\.[0-9]*' | tail -1)
    [ -n "$python" ] || { echo 'no python3 of the distribution' && return 1; }
    "$python" -c 'import test.test_os' 2>/dev/null ||
        apt-get install -y --no-install-recommends "lib${python##*/}-testsuite"
    mkdir -p "$1" && "$python" -c 'import test.test_os' && echo "$python" >"$1/python"
}

verdicts() { # BUILT PLACE OUT
    local python module
    python=$(cat "$1/python")
    mkdir -p "$2/tmp" "$3.d" && cd "$2" || return
    export TMPDIR=$2/tmp HOME=$2
    for module in $cpython_modules; do
        timeout -k 5 300 "$python" -m test -v "test_$module" >"$3.d/$module" 2>&1 </dev/null
    done
    # `test_read (test.test_os.FileTests.test_read) ... ok`; what a test prints may stand between.
    sed -n 's/^\(test[^ ]* ([^)]*)\).* \.\.\. \(.*\)$/\1 \2/p' "$3.d"/* | sed 's/ ok$/ pass/' | sort -u >"$3"
}
