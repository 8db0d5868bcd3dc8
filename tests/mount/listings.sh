# The kernel lists directories by itself: no listing is older than a change that is done.
command -v python3 >/dev/null || { echo "skip python3 is not here"; exit 0; }
chmod 666 "$image"
"$bypath" mount "$image" "$mnt" || exit 1
rounds=${LISTINGS:-150}
same 'listings after changes on the short way' "$(python3 "$here/listings.py" "$mnt" "$rounds" \
    "$bypath" run --no-fuse --mount "$image:$mnt" -- python3 "$here/listings.py" 2>&1)" "$rounds rounds, 0 wrong"
"$bypath" umount "$mnt"
