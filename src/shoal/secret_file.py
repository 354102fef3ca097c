"""The mode of a file with a password, a key or a token: other users of the machine must not read it."""

from __future__ import annotations

import os
import stat

__all__ = ["open_mode"]


def open_mode(status: os.stat_result) -> str | None:
    """
    Return a file's mode, such as ``0644``, if others can read or replace it; None if not.

    This is PostgreSQL's rule for private keys: 0600, or 0640 if the file is root's. systemd's LoadCredential
    and a Kubernetes secret with an ``fsGroup`` hand files over like that.
    """
    forbidden = 0o037 if status.st_uid == 0 else 0o077
    mode = stat.S_IMODE(status.st_mode)
    return f"{mode:04o}" if stat.S_ISREG(status.st_mode) and mode & forbidden else None
