"""What the scripts of this directory share."""
import os


def fails(number, call, *arguments):
    """A call fails with this error."""
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, error
        return
    raise AssertionError(f"{call} said nothing")


def fault(place, how):
    """From now on server.py, which runs in `place`, fails so; not at all where `how` is empty."""
    path = os.path.join(place, "fault")
    if how:
        with open(path + ".new", "w") as file:
            file.write(how)
        os.rename(path + ".new", path)
    elif os.path.exists(path):
        os.remove(path)
