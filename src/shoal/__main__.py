"""
The ``shoal`` command, and ``python -m shoal``.

Importing the command line takes most of a second. It is imported inside
:func:`main`, so that Ctrl-C in that moment is answered by a sentence.
"""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line with the process's arguments; return its exit code."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("shoal: interrupted before anything was started\n")
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
