"""
Files of results: checked before the work begins, and written in one step at its end.

A file replaces what has its name, also a symbolic link: another user of a shared directory could have put
one there, which leads to a file of this user.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from .errors import ConfigError, ShoalError

__all__ = [
    "NO_LINKS",
    "check_result_file",
    "flush_directory",
    "is_temporary",
    "temporary_name",
    "write_in_one_step",
    "write_result_file",
]

#: The errors of a link in a file system that has none, as FAT or many of FUSE.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.ASCII)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def check_result_file(option: str, file: str) -> None:
    """
    Check if a file can be written, without a change to an existing one.

    Args:
        option: The option that names the file.
        file: Its path.

    Raises:
        ConfigError: The file cannot be written.

    """
    path = _place(file)
    if not _is_free(path):
        raise ConfigError(f"{option} {file}: not a file")
    # As at the end: the temporary name is longer than the file's, and the directory must be readable, too.
    temporary = _temporary(path)
    try:
        try:
            os.close(os.open(temporary, _NEW, 0o600))
            flush_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror}") from None


def write_result_file(kind: str, file: str, text: str, *, mode: int = 0o666, replaces: bool = True) -> None:
    """
    Write a file in one step.

    Args:
        kind: The word for it in messages.
        file: Its path.
        text: The content.
        mode: The mode of the file, before the user's umask.
        replaces: Whether it replaces an existing one, which is an error otherwise.

    Raises:
        ShoalError: The file cannot be written.

    """
    try:
        write_in_one_step(_place(file), [text.encode()], mode=mode, replaces=replaces)
    except OSError as error:
        raise ShoalError(f"the {kind} {file} cannot be written: {error.strerror}") from error


def write_in_one_step(
    path: Path, pieces: Iterable[bytes], *, mode: int = 0o666, replaces: bool = False
) -> None:
    """
    Write a file under another name, and give it its own once all of it is on the disk.

    Raises:
        FileExistsError: The name is taken, and ``replaces`` is not set.
        OSError: The file cannot be written.

    """
    temporary = _temporary(path)
    try:
        # Not by mkstemp, since the user's umask determines the mode.
        descriptor = os.open(temporary, _NEW, mode)
        with os.fdopen(descriptor, "wb") as stream:
            for piece in pieces:
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        if replaces:
            temporary.replace(path)
        else:
            _take_name(temporary, path)
        flush_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(name: str) -> str:
    """
    Return an unpredictable name that a file has until it is whole.

    In a shared directory another user could have put a link at another.
    """
    return f".{name}.{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether it is such a name: a process that was killed may have left the file."""
    return _TEMPORARY.fullmatch(name) is not None


def _temporary(path: Path) -> Path:
    return path.with_name(temporary_name(path.name))


def _take_name(temporary: Path, path: Path) -> None:
    """Give a file a name that must be free: by a link, since a rename would replace what has it."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        temporary.rename(path)


def flush_directory(directory: Path) -> None:
    """Have the disk keep the names of a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place(file: str) -> Path:
    """Return the path of a file in its real directory; its own name may be that of a link."""
    path = Path(file)
    return path.parent.resolve() / path.name


def _is_free(path: Path) -> bool:
    """Whether a file may take this path: nothing is there, or a file, or a link that a file may replace."""
    if path.is_symlink():
        # /dev/stdout is a link into /proc, which belongs to the machine.
        return not str(path.readlink()).startswith("/proc/") and (path.is_file() or not path.exists())
    return path.is_file() or not path.exists()
