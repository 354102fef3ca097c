"""
The directory of shoal's state between two runs, closed to the machine's other users.

Directories in it are named after consumer groups, and Spark's logs name topics and hosts.
The XDG base directory specification makes missing directories with mode 0700 too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

import platformdirs

__all__ = ["make_state_directory", "open_no_link", "state_dir"]


def state_dir() -> Path:
    """Return the directory, which need not exist."""
    return platformdirs.user_state_path("shoal", appauthor=False)


def make_state_directory(directory: Path) -> None:
    """
    Make a directory and its parents for this user alone, and close those of shoal that are open to others.

    Existing directories above :func:`state_dir`, and those of other users, keep their modes.

    Raises:
        OSError: The directory cannot be made, or is a file.

    """
    # The mode of `mkdir` is not that of the parents that it makes.
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    top, made = state_dir().resolve(), directory.resolve()
    _close(made)
    for each in made.parents:
        if each == top or top in each.parents:
            _close(each)


def _close(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        with contextlib.suppress(PermissionError):  # another user's directory
            directory.chmod(mode & ~0o077)


def open_no_link(path: str, flags: int) -> int:
    """
    Open a file for Python's ``open``, but refuse a symbolic link, which may be another user's.

    Raises:
        OSError: The name is a symbolic link, or the file cannot be opened.

    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        reason = f"{Path(path).name} is a symbolic link, which may be another user's. Remove it"
        raise OSError(errno.ELOOP, reason) from error
