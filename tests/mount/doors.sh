# One file, written, mapped, cut and punched through both doors in turn. By hand: OPERATIONS=100000.
command -v python3 >/dev/null || { echo "skip doors: no python3 here: NOT tested"; exit 0; }
"$bypath" mount "$image" "$mnt" || exit 1
out=$(python3 -S "$here/doors.py" "$mnt/file" "${OPERATIONS:-4000}" "${SEED:-1}" -- "$bypath" run --no-fuse --mount "$image:$mnt" -- 2>&1)
case $out in
fine*) ok "one file through both doors, ${out#fine }" ;;
*) fail "$out" ;;
esac
"$bypath" umount "$mnt"
