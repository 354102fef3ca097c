"""Small file systems that tests can fill up, for brokers' logs: tmpfs, if this process may mount.

A file ``full`` takes all the remaining room. Kafka ignores it, since it reads only the directories in its
log directory.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import tempfile
from functools import cache
from io import RawIOBase
from pathlib import Path

__all__ = ["MountRefused", "fill", "make_room", "mount", "mounts_are_refused", "unmount"]

_FULL = "full"
_CHUNK = bytes(1024 * 1024)


class MountRefused(Exception):
    """This process may not mount; the text is mount's."""


def mount(directory: Path, megabytes: int) -> None:
    """Mount a separate file system on a directory, which is created if it is missing.

    Raises:
        MountRefused: The process is not root and lacks CAP_SYS_ADMIN, as in most containers.
    """
    directory.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=0700"
    command: list[str | Path] = [_program("mount"), "-t", "tmpfs", "-o", options, "rig", directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MountRefused(done.stderr.strip() or f"mount ended with {done.returncode}")


def unmount(directory: Path) -> None:
    """Unmount, also if a file of it is open."""
    subprocess.run([_program("umount"), "--lazy", directory], check=True)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MountRefused(f"there is no program {name}")
    return found


@cache
def mounts_are_refused() -> str | None:
    """Return the reason for which this process may not mount; None if it may."""
    with tempfile.TemporaryDirectory(prefix="rig-disk-") as directory:
        try:
            mount(Path(directory), 1)
        except MountRefused as error:
            return str(error)
        unmount(Path(directory))
        return None


def fill(directory: Path) -> None:
    """Write until the file system is full, to the last byte."""
    with (directory / _FULL).open("wb", buffering=0) as file:
        for chunk in (_CHUNK, _CHUNK[:1]):
            while _has_room_for(file, chunk):
                pass


def _has_room_for(file: RawIOBase, chunk: bytes) -> bool:
    try:
        return bool(file.write(chunk))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def make_room(directory: Path) -> None:
    """Delete the file that `fill` wrote."""
    (directory / _FULL).unlink()
