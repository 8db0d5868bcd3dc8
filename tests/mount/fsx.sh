# fsx (the crate): 100,000 operations in each door, in short runs, because it never unmaps what it reads by mmap.
suite=${TOOLS:-$here/../../target/tools/bin}/fsx
if [ ! -x "$suite" ]; then
    echo "skip fsx: not installed (make mount-tools): NOT tested"
    exit 0
fi
cat >"$work/loop" <<'LOOP'
suite=$1 dir=$2 runs=$3 work=$4
for seed in $(seq "$runs"); do
    if ! "$suite" -N 1000 -S "$seed" -q -P "$work" "$dir/f$seed" >"$work/out" 2>&1; then
        echo "seed $seed: $(grep -v '^$' "$work/out" | head -1)"
        exit 1
    fi
    rm "$dir/f$seed"
done
echo fine
LOOP
cd "$work" || exit 1
same 'on the short way, 100,000 operations' "$(short sh "$work/loop" "$suite" "$mnt" 100 "$work")" fine
"$bypath" mount "$image" "$mnt" || exit 1
same 'through the mount, 100,000 operations' "$(sh "$work/loop" "$suite" "$mnt" "${RUNS:-100}" "$work")" fine
"$bypath" umount "$mnt"
