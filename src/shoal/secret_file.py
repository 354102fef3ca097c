"""Files with a password, a key or a token: other users of the machine must not read them."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["as_file", "open_mode"]


def open_mode(status: os.stat_result) -> str | None:
    """
    Return a file's mode, such as ``0644``, if others can read or replace it; None if not.

    This is PostgreSQL's rule for private keys: 0600, or 0640 if the file is root's. systemd's LoadCredential
    and a Kubernetes secret with an ``fsGroup`` hand files over like that.
    """
    forbidden = 0o037 if status.st_uid == 0 else 0o077
    mode = stat.S_IMODE(status.st_mode)
    return f"{mode:04o}" if stat.S_ISREG(status.st_mode) and mode & forbidden else None


@contextmanager
def as_file(secret: bytes) -> Iterator[str]:
    """Give a library that reads files alone a secret: in memory on Linux, else in a file of mode 0600."""
    if hasattr(os, "memfd_create"):
        # Only processes of this user can open it.
        with os.fdopen(os.memfd_create("shoal"), "wb", buffering=0) as file:
            file.write(secret)
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="shoal-", buffering=0) as kept:
            kept.write(secret)
            yield kept.name
