"""The sender in Python: the reference of :meth:`shoal.native.Native.send`, and its substitute."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ..errors import ProtocolError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.produce import ProduceOutcome, decode_produce_response, encode_produce_request
from ..records import ENTRY
from .connection import Connection
from .lot import REFILL_AT, Gate, Later, Limits, Lot, Refused, TopicListing, is_open

__all__ = ["send_in_python"]


def send_in_python(
    connection: Connection, listing: TopicListing, lots: Sequence[Lot], limits: Limits, gate: Gate
) -> tuple[str | ShoalError | None, list[int], dict[int, Refused], tuple[Later, ...]]:
    """
    Send lots as :func:`shoal.client.send.send` does.

    Returns:
        1. The reason why it ended early, an end of :meth:`shoal.native.Native.send` or the error itself;
           None if there is none.
        2. The number of batches of each lot that have landed.
        3. The refusals, by the lot's place.
        4. The batches that landed later.

    """
    partitions = [_Partition(lot, limits.forgotten_up_to_ms) for lot in lots]
    end = _Sending(connection, listing, partitions, limits, gate).run()
    refused = {place: each.refused for place, each in enumerate(partitions) if each.refused is not None}
    later = tuple(Later(place, *row) for place, each in enumerate(partitions) for row in each.later)
    return end, [each.landed for each in partitions], refused, later


class _Partition:
    """A lot, and how far it is sent and landed."""

    def __init__(self, lot: Lot, forgotten_up_to_ms: int) -> None:
        self.lot = lot
        #: The bytes of each batch.
        self.views, counts, self._times_ms = _columns_of(lot)
        #: The bytes before each batch, and the offset at which it has to land; also behind the last.
        self.starts = list(accumulate(map(len, self.views), initial=0))
        self._offsets = list(accumulate(counts, initial=lot.base_offset))
        self._forgotten_up_to_ms = forgotten_up_to_ms
        self._newest_ms = lot.newest_ms
        self.next = self.landed = self._in_flight = 0
        self.refused: Refused | None = None
        #: Each batch that landed later than it was expected, and where.
        self.later: list[tuple[int, int]] = []
        self._moved = 0

    @property
    def may_send(self) -> bool:
        """Whether the next batch may go out now; see the rules of :mod:`shoal.client.send`."""
        if not self._in_flight:
            return True
        if self._newest_ms is None:
            return False
        return min(self._newest_ms, *self._times_ms[self.landed : self.next]) > self._forgotten_up_to_ms

    def take(self) -> _Part:
        """Take the next batch for a request, or several."""
        first = self.next
        self.next += 1
        if self.lot.together_bytes:
            behind = bisect_right(self.starts, self.starts[first] + self.lot.together_bytes) - 1
            self.next = max(self.next, behind)
        self._in_flight += 1
        return _Part(self, first, self.next)

    def compare(self, first: int, end: int, outcome: ProduceOutcome) -> None:
        """Compare the answer about batches with the offset at which those before them leave them."""
        self._in_flight -= 1
        if self.refused is not None:
            return  # the log's end has the outcome of what was in flight behind a refused request
        ahead = outcome.base_offset - self._offsets[first] - self._moved
        if outcome.error_code or (ahead and not (ahead > 0 and self.lot.lands_later)):
            self.refused = Refused(first, end, outcome.error_code, outcome.base_offset, outcome.error_message)
            return
        if ahead:
            self.later.append((first, outcome.base_offset))
            self._moved += ahead
        oldest_ms = min(self._times_ms[first:end])
        self._newest_ms = oldest_ms if oldest_ms >= 0 else None
        self.landed = end


class _Part(NamedTuple):
    """Batches of a partition in a request: the first, and the one after the last."""

    partition: _Partition
    first: int
    end: int


def _columns_of(lot: Lot) -> tuple[list[memoryview], Sequence[int], Sequence[int]]:
    """
    Return the bytes, the number of records and the largest timestamp of each batch.

    Raises:
        ValueError: The index is not that of the buffers, or offsets are out of range.

    """
    if len(lot.entries) % ENTRY.size:
        raise ValueError(f"an index of {len(lot.entries)} bytes has no whole entries")
    columns = zip(*ENTRY.iter_unpack(lot.entries), strict=True)
    sizes, counts, times_ms, _ = columns if lot.entries else ((), (), (), ())
    if 0 in sizes or 0 in counts:
        raise ValueError("an index has an empty batch")
    views = []
    buffers = (buffer for buffer in lot.batches if buffer)
    rest = memoryview(b"")
    for size in sizes:
        rest = rest or next(buffers, rest)
        views.append(rest[:size])
        rest = rest[size:]
    is_whole = not rest and next(buffers, None) is None and list(sizes) == list(map(len, views))
    if not is_whole or not 0 <= lot.base_offset <= lot.base_offset + sum(counts) < 2**63:
        raise ValueError(
            f"{lot.partition}: the index is not that of the buffers, or no lot can be from offset "
            f"{lot.base_offset} on"
        )
    return views, counts, times_ms


class _Sending:
    """One run of the sender."""

    def __init__(
        self,
        connection: Connection,
        listing: TopicListing,
        partitions: Sequence[_Partition],
        limits: Limits,
        gate: Gate,
    ) -> None:
        self._connection = connection
        self._listing = listing
        self._limits = limits
        self._gate = gate
        #: The partitions that have batches to send, in their turn.
        self._ready = deque(each for each in partitions if each.views)
        #: The parts of each request without a response; the oldest first.
        self._in_flight: deque[list[_Part]] = deque()
        topics = dict.fromkeys(each.lot.partition.topic for each in partitions)
        self._topic_places = {topic: place for place, topic in enumerate(topics)}
        self._largest = connection.sizes.largest(ApiKey.PRODUCE)
        #: The reason to send nothing more: the gate has closed, or a request may have left in part.
        self._end: str | OSError | None = None

    def run(self) -> str | ShoalError | None:
        """Send all lots, and return once no response is to come."""
        while True:
            if self._end is None and len(self._in_flight) <= REFILL_AT:
                self._send_some()
            if not self._in_flight:
                break
            try:
                fault = self._receive()
            except ShoalError as error:
                return error
            if fault is not None:
                return fault
        return self._connection.fail(self._end) if isinstance(self._end, OSError) else self._end

    def _send_some(self) -> None:
        """Send as many requests as may be in flight."""
        requests: dict[int, list[bytes | memoryview]] = {}
        listed: list[list[_Part]] = []
        room = self._limits.max_in_flight - len(self._in_flight)
        while len(requests) < room and (parts := self._next_request()):
            correlation_id = self._connection.next_correlation_id()
            requests[correlation_id] = self._encode(correlation_id, parts)
            listed.append(parts)
        if not requests:
            return
        sent = self._connection.send_while(
            lambda: is_open(self._gate), requests, ApiKey.PRODUCE, self._largest
        )
        self._in_flight += listed[: sent.whole]
        if sent.error is not None or sent.whole < len(requests):
            self._end = sent.error or ("cut" if sent.is_cut else "gate closed")

    def _next_request(self) -> list[_Part]:
        """Take one batch of each partition that may send, or several, up to a request's size."""
        parts: list[_Part] = []
        size = 0
        for _ in range(len(self._ready)):
            if size >= self._limits.request_bytes:
                break
            partition = self._ready.popleft()
            if partition.refused is not None:
                continue
            if partition.may_send:
                part = partition.take()
                parts.append(part)
                size += partition.starts[part.end] - partition.starts[part.first]
            if partition.next < len(partition.views):
                self._ready.append(partition)
        # A request lists a topic once, with all of its partitions.
        parts.sort(key=lambda part: self._topic_places[part.partition.lot.partition.topic])
        return parts

    def _encode(self, correlation_id: int, parts: Sequence[_Part]) -> list[bytes | memoryview]:
        return encode_produce_request(
            self._listing.by_topic({each.lot.partition: each.views[first:end] for each, first, end in parts}),
            version=self._listing.version,
            correlation_id=correlation_id,
            client_id=self._connection.client_id,
            acks=self._limits.acks,
            timeout_ms=self._limits.timeout_ms,
        )

    def _receive(self) -> str | None:
        """Receive one response at least, and compare those that are whole; return what is wrong with one."""
        while True:
            frame = self._connection.receive()
            parts = self._in_flight.popleft()
            try:
                outcomes = decode_produce_response(
                    frame, self._listing.version, self._listing.names, len(parts)
                )
            except ProtocolError:
                return "malformed"
            about = {each[:2]: each for each in outcomes}
            if len(about) != len(parts) or any(each.lot.partition not in about for each, _, _ in parts):
                return "malformed"
            for partition, first, end in parts:
                partition.compare(first, end, about[partition.lot.partition])
            if not self._connection.is_answered:
                break
        # A request of a send that did not end may have left as a whole: the bytes may be its response.
        is_whole = self._end is None or self._end == "gate closed"
        return "surplus" if is_whole and not self._in_flight and self._connection.is_readable else None
