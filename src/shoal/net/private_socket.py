"""A unix socket for the processes of one user: both ends check who is at the other one."""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
from pathlib import Path

from ..errors import ConfigError

__all__ = ["listen_privately", "user_of"]

#: A client whose connection does not fit in here gets an error at once.
_BACKLOG = 128

#: A client can connect to no longer path (unix(7)), while a socket can be renamed to one.
_LONGEST_PATH_BYTES = 107

#: ``struct ucred``: the process, its user and its group.
_CREDENTIALS = struct.Struct("3i")


def user_of(connection: socket.socket) -> int:
    """Return the user of the process at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return int(user)


def listen_privately(option: str, path: str, patience_s: float) -> socket.socket:
    """
    Listen on a path with the mode 0600; a socket that no process listens on is replaced.

    Args:
        option: The option that names the path.
        path: The path.
        patience_s: The limit for the connection to a socket that is there.

    Raises:
        ConfigError: Another process listens there, or the path cannot be used.

    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise ConfigError(
            f"{option} needs Linux: this system does not show which user connects. Leave it out"
        )
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise ConfigError(
            f"{option} '{path}': no client can connect to a path of more than {_LONGEST_PATH_BYTES} bytes. "
            "Use a shorter one"
        )
    _refuse_taken(option, path, patience_s)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # In a directory that is closed to others, until it has its mode.
        with tempfile.TemporaryDirectory(prefix=".shoal-", dir=Path(path).parent) as directory:
            made = Path(directory, "s")
            listening.bind(str(made))
            made.chmod(0o600)
            listening.listen(_BACKLOG)
            made.replace(path)
    except OSError as error:
        listening.close()
        raise ConfigError(f"{option} '{path}': cannot listen there: {error.strerror or error}") from error
    return listening


def _refuse_taken(option: str, path: str, patience_s: float) -> None:
    """Refuse a path that is in use, or no socket of this user."""
    try:
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(f"{option} '{path}' exists, and is not a socket of this user. Use another path")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(patience_s)
            probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return  # nothing, or the socket of a mirror that was killed
    except OSError as error:
        raise ConfigError(f"{option} '{path}': {error.strerror or error}") from error
    raise ConfigError(f"{option} '{path}' is in use by another mirror. Use another path")
