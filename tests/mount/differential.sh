# Random calls through the mount and on tmpfs: the same results, data, attributes and trees. By hand: OPERATIONS=50000.
testkit=${bypath%/*}/testkit
[ -x "$testkit" ] || { echo "skip differential: no testkit beside bypath (cargo build --release -p bypath-testkit): NOT tested"; exit 0; }
"$bypath" mount "$image" "$mnt" || exit 1
operations=${OPERATIONS:-5000}
out=$("$testkit" differential --backend mount --directory "$mnt" --ops "$operations" --seed "${SEED:-1}")
case $out in
*': the same') ok "$out" ;;
*) fail "$out" ;;
esac
"$bypath" umount "$mnt"
