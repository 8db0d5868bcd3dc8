# The Linux Test Project's tests of system calls on files, but for those that want a block device or a mount of their own.
ltp_calls='access chdir chmod chown chroot close copy_file_range creat dup dup2 dup3 execl execle execlp execv execve execveat
    execvp faccessat faccessat2 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr
    flock fpathconf fremovexattr fsetxattr fstat fstatat fstatfs fsync ftruncate futimesat getcwd getdents getxattr inotify
    lchown lgetxattr link linkat listxattr llistxattr llseek lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat mmap
    msync munmap name_to_handle_at open open_by_handle_at openat openat2 pathconf poll pread preadv preadv2 pselect pwrite
    pwritev pwritev2 read readahead readdir readlink readlinkat readv remove removexattr rename renameat renameat2 rmdir select
    sendfile setxattr splice stat statfs statvfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink
    unlinkat utime utimensat utimes write writev vmsplice'

build() {
    [ -e "$1/list" ] && return
    [ -d "$1" ] || git clone -q --depth 1 https://github.com/linux-test-project/ltp "$1" || return
    ( # make's own variables would go along
        cd "$1" && unset MAKEFLAGS MFLAGS MAKEOVERRIDES && make -s autotools && ./configure -q --prefix="$1/installed" &&
            make -s -j2 -C lib && make -s -j2 -C libs
    ) || return
    make -C "$1/testcases/kernel/syscalls" -k -s -j2
    ltp_list "$1" >"$1/list.new" && [ -s "$1/list.new" ] && mv "$1/list.new" "$1/list"
}

# Lines `CALL NAME COMMAND`.
ltp_list() {
    local call file name line
    for call in $ltp_calls; do
        for file in "$1/testcases/kernel/syscalls/$call"/*.c; do
            name=$(basename "$file" .c)
            [ -x "${file%.c}" ] || continue
            grep -q 'mount_device\|all_filesystems\|needs_device\|needs_rofs\|format_device\|tst_acquire_device' "$file" && continue
            line=$(awk -v name="$name" '$2 == name || $1 == name { print; exit }' "$1/runtest/syscalls")
            [ -z "$line" ] || echo "$call $name ${line#* }"
        done
    done
}

verdicts() { # BUILT PLACE OUT
    local call name command
    export TMPDIR=$2 LTPROOT=$1 LTP_COLORIZE_OUTPUT=0
    mkdir -p "$3.d"
    while read -r call name command; do
        cd "$1/testcases/kernel/syscalls/$call" || exit
        # shellcheck disable=SC2086
        PATH=$PWD:$PATH timeout -k 2 100 $command >"$3.d/$name" 2>&1 </dev/null
        case $? in 0) echo "$name pass" ;; 32) echo "$name not run" ;; 124 | 137) echo "$name too long" ;; *) echo "$name fail" ;; esac
    done <"$1/list" >"$3"
}
