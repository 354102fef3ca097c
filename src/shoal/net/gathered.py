"""Send many buffers by few system calls: without a copy, or joined for TLS."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

__all__ = ["IOV_MAX", "Taken", "send_all", "send_while"]

#: The most buffers that one sendmsg takes: 1,024 on Linux and macOS.
IOV_MAX = os.sysconf("SC_IOV_MAX")

#: The bytes that one call gives to TLS: a call costs as much as the encryption of some kilobytes.
_TLS_JOINED = 256 * 1024


def send_all(connected: socket.socket, parts: Sequence[bytes | memoryview], timeout_s: float) -> None:
    """
    Send parts as :func:`send_while` does, without a condition.

    Raises:
        OSError: The connection failed, or its timeout passed; an unknown part was sent.

    """
    taken = send_while(connected, parts, lambda: True, timeout_s)
    if taken.error is not None:
        raise taken.error


class Taken(NamedTuple):
    """
    The bytes that a socket took of those that were to be sent.

    Attributes:
        size: Their number.
        may_be_more: Whether it may have taken more. A call of TLS that the socket cannot take as a whole
            has sent some of it, and OpenSSL does not report how much.
        error: The failure of the socket, or its timeout; None if it took all, or no more may be sent.

    """

    size: int
    may_be_more: bool
    error: OSError | None


def send_while(
    connected: socket.socket,
    parts: Sequence[bytes | memoryview],
    may_send: Callable[[], bool],
    timeout_s: float,
) -> Taken:
    """
    Send parts as long as they may be sent.

    Args:
        connected: A socket of TLS must wait for nothing (``settimeout(0)``).
        parts: They are not copied without TLS.
        may_send: Called before each system call that sends.
        timeout_s: The limit of each wait until the socket takes bytes.

    """
    is_tls = isinstance(connected, ssl.SSLSocket)
    unsent = deque(each for each in parts if len(each))
    size = 0
    # A call of TLS that could not end has to be repeated with the same bytes.
    is_begun = False
    while unsent:
        if is_tls and not is_begun:
            _join_first(unsent)
        if not may_send():
            return Taken(size, is_begun, None)
        try:
            is_begun = is_tls
            taken = (
                connected.send(unsent[0])
                if is_tls
                else connected.sendmsg(list(islice(unsent, IOV_MAX)), (), socket.MSG_DONTWAIT)
            )
        except (BlockingIOError, ssl.SSLWantWriteError):
            is_ready = _wait(connected, select.POLLOUT, timeout_s)
        except ssl.SSLWantReadError:
            is_ready = _wait(connected, select.POLLIN, timeout_s)
        except OSError as error:
            return Taken(size, is_begun, error)
        else:
            is_begun = False
            size += taken
            _drop(unsent, taken)
            continue
        if not is_ready:
            return Taken(size, is_begun, BlockingIOError("the other end takes nothing"))
    return Taken(size, False, None)


def _drop(unsent: deque[bytes | memoryview], size: int) -> None:
    """Drop the bytes that the socket took: a signal, or a full buffer, may cut a call short."""
    while unsent and size >= len(unsent[0]):
        size -= len(unsent.popleft())
    if size:
        unsent[0] = memoryview(unsent[0])[size:]


def _join_first(unsent: deque[bytes | memoryview]) -> None:
    """Join the first parts up to the size for one call of TLS; a larger one stays as it is."""
    joined = [unsent.popleft()]
    size = len(joined[0])
    while unsent and size + len(unsent[0]) <= _TLS_JOINED:
        size += len(unsent[0])
        joined.append(unsent.popleft())
    unsent.appendleft(b"".join(joined) if len(joined) > 1 else joined[0])


def _wait(connected: socket.socket, event: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(connected, event)
    return bool(poll.poll(timeout_s * 1000))
