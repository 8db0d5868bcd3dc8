# One file written by both doors at once, interleaved block by block; then each door looks over what the other has written.
command -v fio >/dev/null || { echo "skip fio: not installed"; exit 0; }
"$bypath" mount "$image" "$mnt" || exit 1
run() { "$bypath" run --mount "$image:$mnt" -- "$@"; }
# job NAME ENGINE OFFSET OPTIONS…: every second block of 4 KiB, beginning with block OFFSET
job() {
    local name=$1 engine=$2 offset=$3
    shift 3
    fio --minimal --name="$name" --filename="$mnt/both" --ioengine="$engine" --rw=write:4k --bs=4k --offset="$offset" --size=4m --io_size=2m --randseed=7 \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fallocate=none --create_on_open=1 "$@" >"$work/fio.$name" 2>&1
}
export -f job
export mnt work
for engines in 'psync psync' 'pvsync libaio' 'mmap psync' 'io_uring pvsync' 'psync io_uring'; do
    set -- $engines
    rm -f "$mnt/both"
    truncate -s 4m "$mnt/both"
    run bash -c "job a $1 0 --do_verify=0" & short=$!
    job b "$2" 4k --do_verify=0 & long=$!
    wait $short && wait $long && ok "$1 on the short way, $2 through the mount: written" || fail "$1 and $2: $(cat "$work"/fio.?)"
    job a "$1" 0 --verify_only=1 && run bash -c "job b $2 4k --verify_only=1" && ok "$1, $2: each door reads the other's" || fail "$1, $2: $(grep -i verify "$work"/fio.?)"
done
# What is there is really looked at.
printf x | dd of="$mnt/both" bs=1 seek=100 conv=notrunc status=none
job a psync 0 --verify_only=1 && fail 'a wrong byte is not noticed' || ok 'a wrong byte is noticed'
"$bypath" umount "$mnt"
