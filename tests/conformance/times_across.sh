# What is written elsewhere after a file inside is never older than it, so that make never passes over a change.
# ways: short both patched kernel host cached
# needs: python3
python3 -c '
import os, tempfile
wrong = 0
with tempfile.TemporaryDirectory(dir="/var/tmp") as elsewhere:
    source = elsewhere + "/source"
    for turn in range(300):
        for path in "object", source:
            with open(path, "w") as file: file.write(str(turn))
            # With the fine-grained stamps of Linux 6.13, who has looked makes the next one finer.
            os.stat(path)
            with open(path, "a") as file: file.write("more")
        wrong += os.stat(source).st_mtime_ns < os.stat("object").st_mtime_ns
print("older", wrong)'
