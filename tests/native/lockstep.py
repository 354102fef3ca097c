"""
Both pumps in one schedule: what their destination does each time that a pump waits for it.

Python's pump runs in the thread of the test, and each of its polls calls :class:`Schedule`: so the
destination knows that the pump has sent all that it would. It acts by dice, and writes down its acts, and how
many bytes the pump had sent. :func:`replayed` repeats the acts for the native pump after as many bytes.
A pump that sends fewer comes to the deadline; one that sends more has sent other bytes.
"""

from __future__ import annotations

import math
import random
import select
import socket
import struct
import termios
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

from shoal.client import pump as in_python
from shoal.native import LotRow
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import decode_produce_request
from shoal.records import ENTRY
from tests.fuzz.liar import changed_fields, damaged_bytes
from tests.native.pumping import NEVER, Destination

__all__ = ["Ends", "Limits", "Schedule", "connected", "replayed", "scheduled"]

_DEADLINE_S = 120.0

_TOPICS = ("topic", "other")

#: The treatment of an answer by the destination, and how often.
_MOVES = {
    "answer": 60, "part": 6, "error": 4, "offset": 4, "lie": 4, "gate": 3, "cut": 3, "surplus": 2, "id": 1,
}  # fmt: skip

#: Places in an answer, whose topics have names of one length.
_ID, _ERROR, _OFFSET = 4, 21, 23


class Limits(NamedTuple):
    """The values that the rules of exactly once depend on."""

    max_in_flight: int
    forgotten_up_to_ms: int


class Event(NamedTuple):
    """The reaction of the destination once so many bytes were sent to it, and the pump waits.

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
    """A connection's both ends, and the gate of the pump at one of them."""

    pump: socket.socket
    broker: socket.socket
    gate: array[int]

    def act(self, event: Event) -> bytes:
        """Act, and return what is taken; a pump that waits until it can send finds the gate closed then."""
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
        """Return how many bytes of answers the pump has not taken; 0 only if there is none."""
        count = array("i", [0])
        ioctl(self.broker, termios.TIOCOUTQ, count)
        return count[0]

    def take(self) -> bytes:
        taken = bytearray()
        while self.waiting():
            taken += self.broker.recv(1 << 20)
        return bytes(taken)


@contextmanager
def connected(send_buffer: int | None) -> Iterator[Ends]:
    """Connect two Unix sockets: unlike TCP's they take as many bytes each time."""
    with ExitStack() as stack:
        pump, broker = (stack.enter_context(each) for each in socket.socketpair())
        if send_buffer is not None:
            pump.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        yield Ends(pump, broker, array("Q", [NEVER, 0]))


@dataclass
class _Sent:
    """A partition: what was sent, and is to land."""

    times_ms: Sequence[int]
    newest_ms: int | None
    next: int = 0
    landed: int = 0
    in_flight: deque[int] = field(default_factory=deque)

    def check(self, forgotten_up_to_ms: int) -> None:
        """Check that another request may be in flight."""
        if self.in_flight:
            assert self.newest_ms is not None, "the first request is not alone"
            newest = (self.newest_ms, *self.times_ms[self.landed : self.next])
            assert min(newest) > forgotten_up_to_ms, "the producer may be forgotten"

    def send(self, count: int) -> None:
        self.in_flight.append(count)
        self.next += count

    def land(self) -> None:
        count = self.in_flight.popleft()
        oldest_ms = min(self.times_ms[self.landed : self.landed + count])
        self.newest_ms = oldest_ms if oldest_ms >= 0 else None
        self.landed += count


class Schedule:
    """
    A destination that acts by dice, and checks that each request may be in flight.

    Attributes:
        events: Its moves, in their order.
        sent: The bytes that it got.

    """

    def __init__(self, lots: Sequence[LotRow], limits: Limits, ends: Ends, draw: random.Random) -> None:
        self.events: list[Event] = []
        self.sent = bytearray()
        self._limits = limits
        self._ends = ends
        self._draw = draw
        self._destination = Destination()
        self._partitions: dict[tuple[str, int], _Sent] = {}
        for each in lots:
            place = _TOPICS[each.topic], each.partition
            times = [entry[2] for entry in ENTRY.iter_unpack(each.entries)]
            self._partitions[place] = _Sent(times, each.newest_ms)
            self._destination.ends[place] = each.base_offset
        self._framed = 0
        #: The partitions and the honest answer of each request without one.
        self._pending: deque[tuple[list[tuple[str, int]], bytes]] = deque()
        self._rest = b""
        self._was_full = False
        #: Whether the pump counts what lands; None once it may have taken a lie for the truth.
        self._counts: bool | None = True
        #: The last byte that the pump may send.
        self._last_byte = math.inf

    @property
    def landed(self) -> list[int] | None:
        """How many batches of each lot a pump has to count; None if it may have taken a lie for the truth."""
        return None if self._counts is None else [each.landed for each in self._partitions.values()]

    def poll(self) -> SimpleNamespace:
        """Return a poll that lets the destination act instead of waiting."""
        registered: list[int] = []

        def act(wait_ms: int) -> list[int]:
            if not (self.events and self.events[-1].hangs_up):
                (self._is_full if registered == [select.POLLOUT] else self._is_waited_for)()
            return registered

        return SimpleNamespace(register=lambda connection, event: registered.append(event), poll=act)

    def _is_full(self) -> None:
        """Act while the pump waits until it can send."""
        sent = len(self.sent) + self._ends.waiting()
        # Once bytes were taken while a pump sends, how many more it can send is not always the same.
        move = "take" if self._was_full else self._draw.choice(["take", "take", "gate", "cut"])
        self._was_full = True
        if move != "take":
            self._last_byte = sent
        self._do(Event(sent, takes=move != "cut", closes_gate=move == "gate", hangs_up=move == "cut"))

    def _is_waited_for(self) -> None:
        """Act while the pump waits for answers."""
        event = Event(len(self.sent) + self._ends.waiting())
        self.sent += self._ends.take()
        self._receive()
        if self._rest:
            event, self._rest = event._replace(answer=self._rest), b""
        elif self._pending:
            event = self._next(event)
        else:
            event = event._replace(hangs_up=True)  # nothing is left to say
        self._do(event)

    def _receive(self) -> None:
        """Check the requests that are whole, and answer them."""
        while len(self.sent) >= (begin := self._framed + 4):
            end = begin + int.from_bytes(self.sent[begin - 4 : begin])
            if end > len(self.sent):
                break
            frame, self._framed = bytes(self.sent[begin:end]), end
            answer = self._destination.answer(frame)
            produced = decode_produce_request(memoryview(frame), 12).partitions
            listed = [(each.topic, each.partition) for each in produced]
            assert len(set(listed)) == len(listed), "a partition twice in a request"
            for place, count in self._destination.requests[-1].items():
                if self._counts is not None:
                    self._partitions[place].check(self._limits.forgotten_up_to_ms)
                self._partitions[place].send(count)
            self._pending.append((listed, answer))
            if self._counts is not None:
                assert len(self._pending) <= self._limits.max_in_flight
                assert end <= self._last_byte, "a request after the end"

    def _next(self, event: Event) -> Event:
        draw = self._draw
        (move,) = draw.choices(list(_MOVES), list(_MOVES.values()))
        if move == "cut":
            return event._replace(hangs_up=True)
        listed, answer = self._pending.popleft()
        if move in {"error", "offset", "id"}:
            self._counts = self._counts and False
        elif move in {"lie", "surplus"}:
            self._counts = None
        if self._counts:
            for place in listed:
                self._partitions[place].land()
        if move not in {"answer", "part"}:
            self._last_byte = min(self._last_byte, len(self.sent))
        match move:
            case "part":
                at = draw.randrange(1, len(answer))
                answer, self._rest = answer[:at], answer[at:]
            case "error":
                answer = _changed(answer, _ERROR, struct.pack(">h", draw.choice([6, 45, -1])))
            case "offset":
                answer = _changed(answer, _OFFSET, struct.pack(">q", draw.choice([-1, 2**62])))
            case "id":
                answer = _changed(answer, _ID, struct.pack(">i", draw.choice([0, 2**31 - 1])))
            case "lie":
                lie = draw.choice([changed_fields, damaged_bytes])
                answer = lie(answer, ApiKey.PRODUCE, 12, draw)
            case "surplus":
                answer += answer[: draw.choice([1, 4, len(answer)])]
        return event._replace(answer=answer, closes_gate=move == "gate")

    def _do(self, event: Event) -> None:
        self.events.append(event)
        self.sent += self._ends.act(event)


def _changed(answer: bytes, at: int, value: bytes) -> bytes:
    return answer[:at] + value + answer[at + len(value) :]


@contextmanager
def scheduled(schedule: Schedule) -> Iterator[None]:
    """Let the pump in Python wait for a schedule instead of the kernel."""
    fake = SimpleNamespace(poll=schedule.poll, POLLIN=select.POLLIN, POLLOUT=select.POLLOUT)
    with mock.patch.object(in_python, "select", fake):
        yield


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
