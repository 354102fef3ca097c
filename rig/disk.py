"""
Small file systems for brokers' logs, which can be filled up: tmpfs, mounted where this process may mount.

A file ``full`` takes all the room that is left. Kafka does not mind it: of its log directory it looks at
directories only.
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
    """
    Mount a file system of its own on a directory, which is created if it is not there.

    Raises:
        MountRefused: It takes root, or CAP_SYS_ADMIN; a container may have neither.
    """
    directory.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=0700"
    command: list[str | Path] = [_program("mount"), "-t", "tmpfs", "-o", options, "rig", directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MountRefused(done.stderr.strip() or f"mount ended with {done.returncode}")


def unmount(directory: Path) -> None:
    """Unmount, also while a file of it is open."""
    subprocess.run([_program("umount"), "--lazy", directory], check=True)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MountRefused(f"there is no program {name}")
    return found


@cache
def mounts_are_refused() -> str | None:
    """Say why this process may not mount; None if it may."""
    with tempfile.TemporaryDirectory(prefix="rig-disk-") as directory:
        try:
            mount(Path(directory), 1)
        except MountRefused as error:
            return str(error)
        unmount(Path(directory))
        return None


def fill(directory: Path) -> None:
    """Write until nothing more can be written, not even a byte."""
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
    """Take away what `fill` has written."""
    (directory / _FULL).unlink()
