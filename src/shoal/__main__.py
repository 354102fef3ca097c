"""
The ``shoal`` command, and ``python -m shoal``.

Importing the command line and its verb takes most of a second. Both are imported inside
:func:`main`, so that Ctrl-C in that moment is answered by a sentence.
"""

import os
import sys

__all__ = ["main"]


def _open_closed_streams() -> None:
    """
    Open the null device in place of each standard stream that the caller closed (``2>&-``).

    Else Python has None for it, and the next connection gets its number: what Java or another child writes to
    its stderr would go to a broker.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w"))


def main() -> int:
    """Run the command line with the process's arguments; return its exit code."""
    _open_closed_streams()
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:  # a verb that has begun answers its own
        sys.stderr.write("shoal: interrupted before anything was started\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
