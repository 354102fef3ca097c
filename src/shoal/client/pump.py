"""
The pump in Python: the reference of :meth:`shoal.native.Native.pump`, and its substitute.

The rules are those of ``native/src/pump.rs``. A batch costs no object. The pump keeps sizes, offsets and
times of a lot as columns, and encodes once the fields that requests share.
"""

from __future__ import annotations

import select
import struct
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from socket import AF_INET, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_STREAM, fromfd, socket
from typing import TypeAlias

from ..errors import ProtocolError
from ..native import HandedBack, LotRow
from ..net.gathered import IOV_MAX
from ..protocol.apis import ApiKey
from ..protocol.primitives import INT32, read_unsigned_varint, write_unsigned_varint
from ..protocol.produce import FLEXIBLE_FROM, MOST_IN_FLIGHT, after_header
from ..protocol.topic_ids import TOPIC_IDS_FROM
from ..records import ENTRY

__all__ = ["pump"]

_VERSIONS = range(FLEXIBLE_FROM, TOPIC_IDS_FROM + 1)
_LARGEST_REQUEST = 2**30
_LONGEST_CLIENT_ID = 2**15 - 1

_HEADER = struct.Struct(">ihhi")  # the size in front of it
_LANDED = struct.Struct(">ihqqq3s")
_NOTHING_MORE = b"\1\0\0"
_TOPIC_ID_BYTES = 16

_RECEIVE_BYTES = 64 * 1024

#: In a request: the place of the lot, the first batch, the batch after the last.
_Part: TypeAlias = tuple[int, int, int]


def pump(
    socket: int,
    topics: Sequence[bytes],
    lots: Sequence[LotRow],
    *,
    version: int,
    client_id: bytes,
    acks: int,
    timeout_ms: int,
    correlation_id: int,
    max_in_flight: int,
    refill_at: int,
    request_bytes: int,
    forgotten_up_to_ms: int,
    max_answer_bytes: int,
    wait_ms: int,
    gate: array[int],
) -> tuple[str, int, list[int], list[HandedBack], int]:
    """Do as :meth:`shoal.native.Native.pump`."""
    if version not in _VERSIONS:
        raise ValueError(f"the pump has no Produce v{version}")
    if not 1 <= max_in_flight <= MOST_IN_FLIGHT:
        raise ValueError(f"{max_in_flight} requests in flight are not 1 to {MOST_IN_FLIGHT}")
    if acks == 0:
        raise ValueError("requests with acks=0 have no answers")
    if len(client_id) > _LONGEST_CLIENT_ID:
        raise ValueError(f"a client id of {len(client_id)} bytes")
    if gate.typecode != "Q" or len(gate) != 2:
        raise ValueError("the gate is no writable array of two 64-bit words")
    if socket < 0:
        raise ValueError("the socket is closed")
    head = _Head(version, client_id.decode(), acks, timeout_ms)
    limits = _Limits(max_in_flight, refill_at, request_bytes, forgotten_up_to_ms, max_answer_bytes, wait_ms)
    # A duplicate: whatever an exception ends, the caller's descriptor stays open. The family is of no matter.
    with fromfd(socket, AF_INET, SOCK_STREAM) as connected:
        return _PumpRun(connected, topics, lots, head, limits, correlation_id, gate).run()


class _Lost(Exception):
    """The connection is of no use any more; the arguments are the end and its detail."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The fields that all requests of a connection share."""

    version: int
    client_id: str
    acks: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class _Limits:
    """See :meth:`shoal.native.Native.pump`."""

    max_in_flight: int
    refill_at: int
    request_bytes: int
    forgotten_up_to_ms: int
    max_answer_bytes: int
    wait_ms: int


class _LotProgress:
    """A lot, and how far it is sent and landed."""

    __slots__ = (
        "buffer_starts", "buffers", "count", "has_old", "in_flight", "landed", "newest_ms", "next", "number",
        "offsets", "starts", "times_ms", "together_bytes", "topic",
    )  # fmt: skip

    def __init__(self, lot: LotRow, topics: int, limits: _Limits) -> None:
        if len(lot.entries) % ENTRY.size:
            raise ValueError(f"an index of {len(lot.entries)} bytes has no whole entries")
        columns = zip(*ENTRY.iter_unpack(lot.entries), strict=True)
        sizes, counts, times_ms, _ = columns if lot.entries else ((), (), (), ())
        if 0 in sizes or 0 in counts:
            raise ValueError("an index has an empty batch")
        #: The position and the offset of each batch, and behind the last.
        self.starts = list(accumulate(sizes, initial=0))
        self.offsets = list(accumulate(counts, initial=lot.base_offset))
        self.buffers = lot.batches
        #: The position of each buffer, and behind the last.
        self.buffer_starts = list(accumulate(map(len, lot.batches), initial=0))
        length = self.buffer_starts[-1]
        if (
            lot.topic >= topics
            or self.starts[-1] != length
            or lot.base_offset < 0
            or self.offsets[-1] >= 2**63
        ):
            raise ValueError(
                f"partition {lot.partition}: topic {lot.topic} of {topics}, {self.starts[-1]} bytes in the "
                f"index of {length}, {sum(counts)} records from offset {lot.base_offset}"
            )
        size = limits.request_bytes + length
        if size > _LARGEST_REQUEST:
            raise ValueError(f"requests of {size} bytes are too large")
        self.times_ms: tuple[int, ...] = times_ms
        self.count = len(times_ms)
        self.topic, self.number = lot.topic, INT32.pack(lot.partition)
        self.together_bytes = lot.together_bytes
        self.newest_ms = lot.newest_ms
        self.has_old = min(times_ms, default=2**63) <= limits.forgotten_up_to_ms
        self.next = self.landed = self.in_flight = 0

    def take(self, forgotten_up_to_ms: int) -> int:
        """
        Take the batches of one request, by the rules of ``OutboundQueue.may_send`` of a mirror's task.

        Returns:
            The batch after the last; 0 if none may go out now.

        """
        if self.in_flight:
            if self.newest_ms is None or self.newest_ms <= forgotten_up_to_ms:
                return 0
            if self.has_old and min(self.times_ms[self.landed : self.next]) <= forgotten_up_to_ms:
                return 0
        first, end = self.next, self.next + 1
        if self.together_bytes:
            end = max(end, bisect_right(self.starts, self.starts[first] + self.together_bytes) - 1)
        self.next = end
        self.in_flight += 1
        return end

    def views(self, start: int, end: int) -> Sequence[memoryview]:
        """Return the bytes between two positions, as they lie in the buffers."""
        if len(self.buffers) == 1:
            return (self.buffers[0][start:end],)
        views = []
        first = bisect_right(self.buffer_starts, start) - 1
        for buffer, at in zip(self.buffers[first:], self.buffer_starts[first:], strict=False):
            if at >= end:
                break
            if view := buffer[max(0, start - at) : end - at]:
                views.append(view)
        return views

    def land(self, end: int) -> None:
        """Count the batches of the oldest request."""
        first = self.landed
        oldest_ms = self.times_ms[first] if end == first + 1 else min(self.times_ms[first:end])
        self.newest_ms = oldest_ms if oldest_ms >= 0 else None
        self.landed = end
        self.in_flight -= 1


class _PumpRun:
    """One run; see :meth:`shoal.native.Native.pump`."""

    def __init__(
        self,
        connected: socket,
        topics: Sequence[bytes],
        lots: Sequence[LotRow],
        head: _Head,
        limits: _Limits,
        correlation_id: int,
        gate: array[int],
    ) -> None:
        self._socket = connected
        self._topics = topics
        self._progress = [_LotProgress(lot, len(topics), limits) for lot in lots]
        self._places: dict[tuple[bytes, int], int] = {}
        for place, lot in enumerate(lots):
            if self._places.setdefault((topics[lot.topic], lot.partition), place) != place:
                raise ValueError(f"partition {lot.partition} of a topic is listed twice")
        self._head = head
        self._limits = limits
        self._correlation_id = correlation_id
        self._gate = gate
        #: The places of lots that have batches to send, in their turn.
        self._ready = deque(place for place, each in enumerate(self._progress) if each.count)
        #: For each request without an answer, its correlation id and parts; the oldest first.
        self._in_flight: deque[tuple[int, list[_Part]]] = deque()
        self._requests = 0
        self._received = bytearray()
        self._handed_back: list[HandedBack] = []
        #: The last request if only a part of it was sent: no answer will come.
        self._cut: list[HandedBack] = []
        self._end, self._detail = "done", 0
        self._to_receive, self._to_send = select.poll(), select.poll()
        self._to_receive.register(connected, select.POLLIN)
        self._to_send.register(connected, select.POLLOUT)

    def run(self) -> tuple[str, int, list[int], list[HandedBack], int]:
        """Send all lots, and return once no answer is to come."""
        try:
            while True:
                if self._end == "done" and len(self._in_flight) <= self._limits.refill_at:
                    self._send_some()
                if not self._in_flight:
                    break
                self._receive()
        except _Lost as lost:
            self._end, self._detail = lost.args
        unanswered: list[HandedBack] = [(parts, None) for _, parts in self._in_flight]
        handed_back = self._handed_back + unanswered + self._cut
        landed = [each.landed for each in self._progress]
        return self._end, self._detail, landed, handed_back, self._requests

    def _send_some(self) -> None:
        """Send as many requests as may be in flight, in one system call if it takes them."""
        buffers: list[bytes | memoryview] = []
        ends: list[int] = []
        size = 0
        while self._ready and len(self._in_flight) < self._limits.max_in_flight:
            parts = self._next_request()
            if not parts:
                break
            number = self._correlation_id + self._requests & 0x7FFFFFFF
            size += self._frame(number, parts, buffers)
            ends.append(size)
            self._in_flight.append((number, parts))
            self._requests += 1
        sent = self._send(buffers, size)
        while ends and ends[-1] > sent:
            ends.pop()
            _, parts = self._in_flight.pop()
            begin = ends[-1] if ends else 0
            self._cut = [(parts, None)] if sent > begin else []

    def _send(self, buffers: list[bytes | memoryview], size: int) -> int:
        """Send all of it, unless the gate closes; return how many bytes were sent."""
        sent = first = 0
        while sent < size:
            # Before each system call: the broker may have let the last one wait for long.
            if time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= self._gate[0]:
                self._end = "gate closed"
                break
            try:
                count = self._socket.sendmsg(
                    buffers[first : first + IOV_MAX], (), MSG_DONTWAIT | MSG_NOSIGNAL
                )
            except BlockingIOError:
                if not self._to_send.poll(self._limits.wait_ms):
                    self._end = "timed out"
                    break
                continue
            except OSError as error:
                self._end, self._detail = "failed", error.errno or 0
                break
            sent += count
            while sent < size and count >= len(buffers[first]):
                count -= len(buffers[first])
                first += 1
            if sent < size:
                buffers[first] = memoryview(buffers[first])[count:]
        return sent

    def _next_request(self) -> list[_Part]:
        """Take one batch of each partition that may send, or several, up to a request's size."""
        parts = []
        size = 0
        for _ in range(len(self._ready)):
            if size >= self._limits.request_bytes:
                break
            place = self._ready.popleft()
            each = self._progress[place]
            first = each.next
            end = each.take(self._limits.forgotten_up_to_ms)
            if end:
                parts.append((place, first, end))
                size += each.starts[end] - each.starts[first]
            if each.next < each.count:
                self._ready.append(place)
        if len(self._topics) > 1:
            # A request lists a topic once, with all of its partitions.
            parts.sort(key=self._topic_of)
        return parts

    def _topic_of(self, part: _Part) -> int:
        return self._progress[part[0]].topic

    def _frame(self, number: int, parts: Sequence[_Part], to: list[bytes | memoryview]) -> int:
        """Append a request to the buffers, its size first; return how many bytes that are."""
        by_topic: list[tuple[int, Sequence[_Part]]] = [(0, parts)]
        if len(self._topics) > 1:
            by_topic = [(topic, list(each)) for topic, each in groupby(parts, key=self._topic_of)]
        shared = self._head
        head = after_header(shared.version, shared.client_id, shared.acks, shared.timeout_ms, len(by_topic))
        size = _HEADER.size
        place_of_header = len(to)
        to.append(b"")
        for topic, of_topic in by_topic:
            head += self._topics[topic] + write_unsigned_varint(len(of_topic) + 1)
            for place, first, end in of_topic:
                each = self._progress[place]
                start, behind = each.starts[first], each.starts[end]
                head += each.number + write_unsigned_varint(behind - start + 1)
                to.append(head)
                to += each.views(start, behind)
                size += len(head) + behind - start
                head = b"\0"  # no tagged fields
            head += b"\0"
        head += b"\0"
        to.append(head)
        size += len(head)
        to[place_of_header] = _HEADER.pack(size - INT32.size, ApiKey.PRODUCE, shared.version, number)
        return size

    def _receive(self) -> None:
        """Receive some bytes, and compare the answers that are whole."""
        if not self._to_receive.poll(self._limits.wait_ms):
            raise _Lost("timed out", 0)
        try:
            data = self._socket.recv(_RECEIVE_BYTES, MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            raise _Lost("failed", error.errno or 0) from None
        if not data:
            raise _Lost("closed", 0)
        self._gate[1] = time.monotonic_ns()
        self._received += data
        self._take_answers()
        if self._received and not self._in_flight:
            raise _Lost("surplus", 0)

    def _take_answers(self) -> None:
        received, at = self._received, 0
        while self._in_flight and len(received) - at >= INT32.size:
            begin = at + INT32.size
            size = int.from_bytes(received[at:begin])
            if size > self._limits.max_answer_bytes:
                raise _Lost("too large", size)
            if len(received) < begin + size:
                break
            at = begin + size
            frame = bytes(received[begin:at])
            number, parts = self._in_flight[0]
            if frame[: INT32.size] != INT32.pack(number):
                raise _Lost("wrong id", 0)
            self._in_flight.popleft()
            if self._handed_back or not self._has_landed(frame, parts):
                self._handed_back.append((parts, frame))
                if self._end in {"done", "gate closed"}:
                    self._end = "unexpected"
        del received[:at]

    def _has_landed(self, frame: bytes, parts: Sequence[_Part]) -> bool:
        """Whether each batch of a request landed at its offset without an error; if so, count them."""
        found = self._landed_at(memoryview(frame))
        if found is None or len(found) != len(parts):
            return False
        for place, first, _ in parts:
            if found.get(place) != self._progress[place].offsets[first]:
                return False
        for place, _, end in parts:
            self._progress[place].land(end)
        return True

    def _landed_at(self, frame: memoryview) -> dict[int, int] | None:
        """Read an answer without errors: the offsets by the place of the lot; None for any other answer."""
        found: dict[int, int] = {}
        try:
            if frame[INT32.size]:
                return None
            topics, at = _read_length(frame, INT32.size + 1)
            for _ in range(topics):
                begin = at
                if self._head.version >= TOPIC_IDS_FROM:
                    at += _TOPIC_ID_BYTES
                else:
                    length, at = _read_length(frame, at)
                    at += length
                topic = bytes(frame[begin:at])
                count, at = _read_length(frame, at)
                behind = at + count * _LANDED.size
                for number, error_code, base_offset, _, _, rest in _LANDED.iter_unpack(frame[at:behind]):
                    place = self._places.get((topic, number))
                    if error_code or rest != _NOTHING_MORE or place is None or place in found:
                        return None
                    found[place] = base_offset
                if frame[behind]:
                    return None
                at = behind + 1
        except (IndexError, ProtocolError, struct.error):
            return None
        # The throttle time, and no tagged fields.
        return found if len(frame) == at + 5 and not frame[at + 4] else None


def _read_length(frame: memoryview, position: int) -> tuple[int, int]:
    """Read the length of a compact string or array; return it and the position after it."""
    value = frame[position]
    if value < 0x80:
        position += 1
    else:
        value, position = read_unsigned_varint(frame, position)
    if not value:
        raise ProtocolError("null, where the answer to a request has something")
    return value - 1, position
