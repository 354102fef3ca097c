"""Send many buffers by few system calls: without a copy, or joined for TLS."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

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
    sending: _Sending = _Gathered(connected, parts)
    if isinstance(connected, ssl.SSLSocket):
        sending = _Joined(connected, parts)
    size = 0
    while not sending.is_sent:
        if not may_send():
            return Taken(size, sending.is_begun, None)
        try:
            size += sending.send()
        except (BlockingIOError, ssl.SSLWantWriteError):
            is_ready = _wait(connected, select.POLLOUT, timeout_s)
        except ssl.SSLWantReadError:
            is_ready = _wait(connected, select.POLLIN, timeout_s)
        except OSError as error:
            return Taken(size, sending.is_begun, error)
        else:
            continue
        if not is_ready:
            return Taken(size, sending.is_begun, BlockingIOError("the other end takes nothing"))
    return Taken(size, False, None)


def _wait(connected: socket.socket, event: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(connected, event)
    return bool(poll.poll(timeout_s * 1000))


class _Sending(Protocol):
    """Parts on their way out."""

    @property
    def is_sent(self) -> bool:
        """Whether the socket took all."""

    @property
    def is_begun(self) -> bool:
        """Whether the socket may have taken bytes that no call of :meth:`send` has returned."""

    def send(self) -> int:
        """Call the system once; return how many bytes the socket took."""


class _Gathered:
    """Parts that the kernel gathers; see :class:`_Sending`."""

    is_begun = False

    def __init__(self, connected: socket.socket, parts: Iterable[bytes | memoryview]) -> None:
        self._socket = connected
        self._unsent = list(parts)
        self._first = 0

    @property
    def is_sent(self) -> bool:
        return self._first == len(self._unsent)

    def send(self) -> int:
        unsent = self._unsent
        some = unsent[self._first : self._first + IOV_MAX]
        size = rest = self._socket.sendmsg(some, (), socket.MSG_DONTWAIT)
        while self._first < len(unsent) and rest >= len(unsent[self._first]):
            rest -= len(unsent[self._first])
            self._first += 1
        if rest:  # a signal, or a full buffer cut the call short
            unsent[self._first] = memoryview(unsent[self._first])[rest:]
        return size


class _Joined:
    """Parts that TLS takes joined; see :class:`_Sending`."""

    def __init__(self, connected: ssl.SSLSocket, parts: Iterable[bytes | memoryview]) -> None:
        self._socket = connected
        self._joined = _join(parts)
        self._next = next(self._joined, None)
        self.is_begun = False

    @property
    def is_sent(self) -> bool:
        return self._next is None

    def send(self) -> int:
        assert self._next is not None
        # A call that could not end has to be repeated with the same bytes.
        self.is_begun = True
        size = self._socket.send(self._next)
        rest = memoryview(self._next)[size:]
        self._next = rest if rest else next(self._joined, None)
        self.is_begun = False
        return size


def _join(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Join parts up to the size for one call of TLS; a larger one comes as it is."""
    small: list[bytes | memoryview] = []
    joined = 0
    for part in parts:
        if small and joined + len(part) > _TLS_JOINED:
            yield b"".join(small)
            small, joined = [], 0
        if len(part) >= _TLS_JOINED:
            yield part
        elif part:
            small.append(part)
            joined += len(part)
    if small:
        yield b"".join(small)
