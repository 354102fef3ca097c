"""Free ports, reserved for this process until it ends, and ids of clusters."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path

__all__ = ["NoFreePort", "free_port", "random_uuid"]

_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoFreePort(Exception):
    """All ports of a range are taken; the text has the range."""


def free_port() -> int:
    """Return a port on which no process listens.

    The port is below the ephemeral range. Otherwise, while a broker is down, the system could assign its
    port to an outgoing connection, even to the client's own connection to this port.

    The port is reserved for this process until it ends. Other processes that run tests get other ports,
    and so do later calls, also if no broker has bound the port yet.
    """
    first_ephemeral = 32768
    if _EPHEMERAL_PORTS.exists():
        first_ephemeral = int(_EPHEMERAL_PORTS.read_text().split()[0])
    highest = first_ephemeral - 1 if first_ephemeral > 12000 else 65535
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        port = random.randint(10000, highest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if _reserved(port):
                return port
    raise NoFreePort(f"no free port between 10000 and {highest}")


_reserving = threading.Lock()
_ports: set[int] = set()


def _reserved(port: int) -> bool:
    """Reserve a port for this process by a lock on a byte of a file; the lock ends with the process."""
    with _reserving:
        if port in _ports:
            return False
        try:
            fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        _ports.add(port)
        return True


@cache
def _port_locks() -> int:
    # Never close this descriptor: if a process closes a file, it loses its locks on it.
    return os.open(Path(tempfile.gettempdir()) / f"rig-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def random_uuid() -> str:
    """Return a UUID as Kafka writes it: URL-safe base64, 22 characters, no leading dash."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
