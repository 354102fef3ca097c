"""
Acts of a destination, and their repetition for a second sender.

A schedule (``send_lockstep.py``) writes down its acts, and how many bytes the sender had sent.
:func:`replayed` repeats the acts for the native sender after as many bytes. A sender that sends fewer comes
to the deadline; one that sends more has sent other bytes.
"""

from __future__ import annotations

import socket
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from typing import NamedTuple

__all__ = ["Ends", "Event", "replayed"]

_DEADLINE_S = 120.0


class Event(NamedTuple):
    """The reaction of the destination once so many bytes were sent to it, and the sender waits.

    Attributes:
        sent: The bytes.
        takes: Whether they are taken out of the socket.
        closes_gate: Before the answer.
        answer: Bytes of answers.
        hangs_up: After the answer.
    """

    sent: int
    takes: bool = True
    closes_gate: bool = False
    answer: bytes = b""
    hangs_up: bool = False


class Ends(NamedTuple):
    """A connection's both ends, and the gate of the sender at one of them."""

    sender: socket.socket
    broker: socket.socket
    gate: array[int]

    def act(self, event: Event) -> bytes:
        """Act, and return what is taken; a sender that waits until it can send finds the gate closed then."""
        if event.closes_gate:
            self.gate[0] = 0
        taken = self.take() if event.takes else b""
        if event.answer:
            self.broker.sendall(event.answer)
        if event.hangs_up:
            self.broker.shutdown(socket.SHUT_RDWR)
        return taken

    def waiting(self) -> int:
        """Return how many bytes were sent and not taken."""
        count = array("i", [0])
        ioctl(self.broker, termios.FIONREAD, count)
        return count[0]

    def unread(self) -> int:
        """Return how many bytes of answers the sender has not taken; 0 only if there is none."""
        count = array("i", [0])
        ioctl(self.broker, termios.TIOCOUTQ, count)
        return count[0]

    def take(self) -> bytes:
        taken = bytearray()
        while self.waiting():
            taken += self.broker.recv(1 << 20)
        return bytes(taken)


@contextmanager
def replayed(events: Sequence[Event], ends: Ends) -> Iterator[bytearray]:
    """Act as before, in a thread; yield what is sent, complete at the end."""
    sent = bytearray()
    has_ended = threading.Event()

    def wait_until(is_so: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + _DEADLINE_S
        while not is_so() and not has_ended.is_set() and time.monotonic() < deadline:
            time.sleep(0.0002)
        return is_so()

    def replay() -> None:
        for event in events:
            if not wait_until(lambda: len(sent) + ends.waiting() >= event.sent):  # noqa: B023
                break
            sent.extend(ends.act(event))
            wait_until(lambda: not ends.unread())  # so that the next answer comes by itself
        else:
            return
        ends.broker.shutdown(socket.SHUT_RDWR)

    acting = threading.Thread(target=replay)
    acting.start()
    try:
        yield sent
    finally:
        has_ended.set()
        acting.join()
        sent.extend(ends.take())
