"""
Both senders in one schedule: what their destination does each time that a sender waits for it.

Python's sender runs in the thread of the test. Before it waits it calls :class:`SendSchedule`, so the
destination knows that the sender has sent all that it would. The native one gets the same acts after as many
bytes.
"""

from __future__ import annotations

import math
import random
import select
import socket
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from unittest import mock

from shoal.client import connection as connection_module
from shoal.client.connection import Connection
from shoal.client.lot import Limits, Lot
from shoal.net import gathered
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import decode_produce_request
from shoal.records import ENTRY
from tests.hostile.liar import changed_fields, damaged_bytes
from tests.native.destination import NEVER, Destination
from tests.native.lockstep import Ends, Event

__all__ = ["SendSchedule", "linked", "scheduled_send"]

#: The treatment of an answer by the destination, and how often.
_MOVES = {
    "answer": 50, "several": 10, "part": 6, "error": 8, "offset": 6, "lie": 4, "gate": 3, "cut": 3,
    "surplus": 2, "id": 1,
}  # fmt: skip

#: Places in an answer, whose topics have names of one length.
_ID, _ERROR, _OFFSET = 4, 21, 23

#: The kernel's timeout of a receive: longer than any wait here, which would be a failure.
_TIMEVAL = struct.pack("ll", 60, 0)


class _Watched(socket.socket):
    """A socket that calls back before a receive would wait."""

    on_wait: Callable[[], object] | None = None

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self.on_wait is not None and not select.select([self], [], [], 0)[0]:
            self.on_wait()
        return super().recv(size, flags)


@contextmanager
def linked(send_buffer: int | None) -> Iterator[tuple[Connection, Ends]]:
    """
    Connect by two Unix sockets: unlike TCP's they take as many bytes each time.

    The connection is opened without a request: the destination knows only Produce.

    """
    ours, broker = socket.socketpair()
    watched = _Watched(fileno=ours.detach())
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        watched.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL)
    if send_buffer is not None:
        watched.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    with ExitStack() as stack:
        stack.enter_context(broker)
        with mock.patch.multiple(
            connection_module,
            prepare_socket=lambda *_, **__: None,
            ask_versions=lambda *_: {ApiKey.PRODUCE: (3, 12)},
        ):
            connection = Connection(
                Address("localhost", 9092), client_id="shoal", timeout_s=60.0, open_with=lambda *_: watched
            )
        yield stack.enter_context(connection), Ends(watched, broker, array("Q", [NEVER, 0]))


@dataclass
class _Sent:
    """A partition: what was sent, and is to land."""

    times_ms: Sequence[int]
    newest_ms: int | None
    next: int = 0
    landed: int = 0
    in_flight: deque[int] = field(default_factory=deque)
    is_refused: bool = False

    def check(self, forgotten_up_to_ms: int) -> None:
        """Check that another request may be in flight."""
        assert not self.is_refused, "a request behind a refusal"
        if self.in_flight:
            assert self.newest_ms is not None, "the first request is not alone"
            newest = (self.newest_ms, *self.times_ms[self.landed : self.next])
            assert min(newest) > forgotten_up_to_ms, "the producer may be forgotten"

    def send(self, count: int) -> None:
        self.in_flight.append(count)
        self.next += count

    def take_answer(self, *, has_landed: bool) -> None:
        count = self.in_flight.popleft()
        self.is_refused = self.is_refused or not has_landed
        if not self.is_refused:
            oldest_ms = min(self.times_ms[self.landed : self.landed + count])
            self.newest_ms = oldest_ms if oldest_ms >= 0 else None
            self.landed += count


class SendSchedule:
    """
    A destination that acts by dice, and checks that each request may be in flight.

    Attributes:
        events: Its moves, in their order.
        sent: The bytes that it got.

    """

    def __init__(self, lots: Sequence[Lot], limits: Limits, ends: Ends, draw: random.Random) -> None:
        self.events: list[Event] = []
        self.sent = bytearray()
        self._limits = limits
        self._ends = ends
        self._draw = draw
        self._destination = Destination()
        self._partitions: dict[tuple[str, int], _Sent] = {}
        for lot in lots:
            times = [entry[2] for entry in ENTRY.iter_unpack(lot.entries)]
            place = lot.partition.topic, lot.partition.partition
            self._partitions[place] = _Sent(times, lot.newest_ms)
            self._destination.ends[place] = lot.base_offset
        self._framed = 0
        #: The partitions and the honest answer of each request without one.
        self._pending: deque[tuple[list[tuple[str, int]], bytes]] = deque()
        #: The rest of an answer, and what it does.
        self._rest: tuple[bytes, Callable[[], None]] | None = None
        self._was_full = False
        #: Whether the sender counts what lands; None once it may have taken a lie for the truth.
        self._counts: bool | None = True
        #: The last byte that the sender may send.
        self._last_byte = math.inf

    @property
    def landed(self) -> list[int] | None:
        """The batches of each lot that have landed; None if the sender may have taken a lie for the truth."""
        return None if self._counts is None else [each.landed for each in self._partitions.values()]

    def poll(self) -> SimpleNamespace:
        """Return a poll that lets the destination act instead of waiting until it takes bytes."""
        registered: list[int] = []

        def act(wait_ms: float) -> list[int]:
            if not self._has_hung_up:
                self._is_full()
            return registered

        return SimpleNamespace(register=lambda connection, event: registered.append(event), poll=act)

    @property
    def _has_hung_up(self) -> bool:
        return bool(self.events) and self.events[-1].hangs_up

    def _is_full(self) -> None:
        """Act while the sender waits until it can send."""
        sent = len(self.sent) + self._ends.waiting()
        # Once bytes were taken while a sender sends, how many more it can send is not always the same.
        move = "take" if self._was_full else self._draw.choice(["take", "take", "gate", "cut"])
        self._was_full = True
        if move != "take":
            self._last_byte = sent
        self._do(Event(sent, takes=move != "cut", closes_gate=move == "gate", hangs_up=move == "cut"))

    def wait_for_answers(self) -> None:
        """Act while the sender waits for answers."""
        if self._has_hung_up:
            return
        event = Event(len(self.sent) + self._ends.waiting())
        self.sent += self._ends.take()
        self._receive()
        if self._rest is not None:
            (rest, take), self._rest = self._rest, None
            event = event._replace(answer=rest)
            take()
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

    def _next(self, event: Event, moves: Mapping[str, int] = _MOVES) -> Event:
        draw = self._draw
        (move,) = draw.choices(list(moves), list(moves.values()))
        if move == "cut":
            return event._replace(hangs_up=True)
        listed, answer = self._pending.popleft()
        if move == "id":
            self._counts = self._counts and False
        elif move in {"lie", "surplus"}:
            self._counts = None
        refused = listed[0] if move in {"error", "offset"} else None
        counts = self._counts

        def take() -> None:
            for place in listed if counts else ():
                self._partitions[place].take_answer(has_landed=place != refused)

        if move in {"lie", "gate", "surplus", "id"}:
            self._last_byte = min(self._last_byte, len(self.sent))
        match move:
            case "part":
                at = draw.randrange(1, len(answer))
                self._rest = answer[at:], take
                return event._replace(answer=answer[:at])
            case "error":
                answer = _changed(answer, _ERROR, struct.pack(">h", draw.choice([6, 45, -1])))
            case "offset":
                answer = _changed(answer, _OFFSET, struct.pack(">q", draw.choice([-1, 2**62])))
            case "id":
                answer = _changed(answer, _ID, struct.pack(">i", draw.choice([0x7FFFFFFE, 2**31 - 1])))
            case "lie":
                lie = draw.choice([changed_fields, damaged_bytes])
                answer = lie(answer, ApiKey.PRODUCE, 12, draw)
            case "surplus":
                answer += answer[: draw.choice([1, 4, len(answer)])]
        take()
        if move == "several" and self._pending:
            # Between an answer and a hangup the native sender might send more.
            following = self._next(event, {move: weight for move, weight in _MOVES.items() if move != "cut"})
            return following._replace(answer=answer + following.answer)
        return event._replace(answer=answer, closes_gate=move == "gate")

    def _do(self, event: Event) -> None:
        self.events.append(event)
        self.sent += self._ends.act(event)


def _changed(answer: bytes, at: int, value: bytes) -> bytes:
    return answer[:at] + value + answer[at + len(value) :]


@contextmanager
def scheduled_send(schedule: SendSchedule, ends: Ends) -> Iterator[None]:
    """Let the sender in Python wait for a schedule instead of the kernel."""
    fake = SimpleNamespace(poll=schedule.poll, POLLIN=select.POLLIN, POLLOUT=select.POLLOUT)
    watched = ends.sender
    assert isinstance(watched, _Watched)
    watched.on_wait = schedule.wait_for_answers
    try:
        with mock.patch.object(gathered, "select", fake):
            yield
    finally:
        watched.on_wait = None
