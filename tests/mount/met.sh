# A file that the mount meets for the first time while the short way changes it: the notice may
# overtake the answer that tells the kernel of it. Whatever the order, it shows the change.
"$bypath" mount "$image" "$mnt" || exit 1
cat >"$work/met.py" <<'PY'
import mmap, os, struct, sys, time
role, directory, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
# How far each of the two has come; both are at the same file at any moment.
steps = mmap.mmap(os.open(sys.argv[4], os.O_RDWR), 4096)
own, other = (0, 8) if role == "change" else (8, 0)
end = time.monotonic() + 120
def meet(number):
    struct.pack_into("Q", steps, own, number)
    while struct.unpack_from("Q", steps, other)[0] < number:
        os.sched_yield()
        if time.monotonic() > end:
            sys.exit("the other one is gone")
def spin(ns):
    until = time.monotonic_ns() + ns
    while time.monotonic_ns() < until:
        pass
stale = 0
for number in range(files):
    path = f"{directory}/f{number}"
    if role == "change":
        with open(path, "w") as out:
            out.write("1")
        meet(2 * number + 1)
        # Sooner or later after the other one has begun to look.
        spin(number % 97 * 2000)
        os.truncate(path, 1000 + number)
        meet(2 * number + 2)
    else:
        meet(2 * number + 1)
        if number % 2:
            os.stat(path)
        else:
            # All of them at once, with their attributes.
            with os.scandir(directory) as entries:
                sum(1 for _ in entries)
        meet(2 * number + 2)
        stale += os.stat(path).st_size != 1000 + number
if role != "change":
    print(stale)
PY
mkdir "$mnt/d"
head -c 4096 /dev/zero >"$work/steps"
short python3 "$work/met.py" change "$mnt/d" 200 "$work/steps" &
same 'met while it changes' "$(python3 "$work/met.py" look "$mnt/d" 200 "$work/steps")" 0
wait $!
same 'the other way is content' $? 0
"$bypath" umount "$mnt"
