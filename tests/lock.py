# Locks a file: NAME flock|record|ofd hold|try|wait|close|interrupted; prints what came of it. hold and close wait for lines.
import errno, fcntl, os, signal, struct, sys
name, kind, what = sys.argv[1:4]
f = open(name, "r+")
def lock(type, wait):
    if kind == "flock":
        how = {fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}[type]
        return fcntl.flock(f, how | (0 if wait else fcntl.LOCK_NB))
    command = {"record": (fcntl.F_SETLK, fcntl.F_SETLKW), "ofd": (37, 38)}[kind][wait]
    fcntl.fcntl(f, command, struct.pack("hhqqi4x", type, 0, 0, 0, 0))
def attempt():
    try:
        lock(fcntl.F_WRLCK, False)
        return "had"
    except OSError as e:
        return errno.errorcode[e.errno]
def say(text): print(text, flush=True)
if what == "hold":
    lock(fcntl.F_WRLCK, True)
    say("had")
    sys.stdin.readline()
    open("given-up", "w").close()
    lock(fcntl.F_UNLCK, False)
    sys.stdin.readline()
elif what == "close":
    lock(fcntl.F_WRLCK, True)
    f.close()
    f = open(name, "r+")
    say("closed")
    sys.stdin.readline()
elif what == "try": say(attempt())
elif what == "wait":
    lock(fcntl.F_WRLCK, True)
    say("had" if os.path.exists("given-up") else "had too early")
elif what == "interrupted":
    def handler(*_): raise InterruptedError
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        lock(fcntl.F_WRLCK, True)
        say("had")
    except InterruptedError:
        say("interrupted")
