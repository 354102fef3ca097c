"""The local directory in which a task gathers its open segments."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ....errors import Disconnected

__all__ = ["MOST_SPOOL_BYTES", "open_spool"]

#: The most bytes in the open segments of a task. Above it, the largest one is closed.
MOST_SPOOL_BYTES = 4 * 1024 * 1024 * 1024

_PREFIX = f"shoal-spool-{os.getuid()}-"
_LOCK = "lock"


@contextlib.contextmanager
def open_spool() -> Iterator[Callable[[], Path]]:
    """
    Make a directory until the end of the block, and delete those of tasks that were killed.

    Yields:
        A function that returns the path of the next segment's file, which does not exist. It makes another
        directory if something else has deleted this one.

    Raises:
        Disconnected: The local disk takes no directory; so does the function.

    """
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:
        directory = _new_directory(stack)

        def next_file() -> Path:
            nonlocal directory
            if not directory.is_dir():
                directory = _new_directory(stack)
            return directory / f"{next(numbers)}.log"

        yield next_file


def _new_directory(stack: contextlib.ExitStack) -> Path:
    where = Path(tempfile.gettempdir())
    try:
        _delete_left(where)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        fcntl.flock(stack.enter_context((directory / _LOCK).open("w")), fcntl.LOCK_EX)
    except OSError as error:
        raise Disconnected(f"the local disk ({where})", error.strerror or str(error)) from error
    return directory


def _delete_left(where: Path) -> None:
    """Delete the directories whose owner holds their lock no more."""
    for directory in where.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), (directory / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
