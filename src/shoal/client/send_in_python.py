"""The sender in Python: the reference of :meth:`shoal.native.Native.send`, and its substitute."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..errors import ProtocolError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.produce import ProduceOutcome, decode_produce_response, encode_produce_request
from ..records import ENTRY
from .connection import Connection
from .lot import REFILL_AT, Gate, Later, Limits, Lot, Refused, TopicListing, is_open

__all__ = ["send_in_python"]

_NO_TIME_MS = 2**63 - 1


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
    sending = _Sending(connection, listing, lots, limits, gate)
    end = sending.run()
    partitions = sending.partitions
    refused = {place: each.refused for place, each in enumerate(partitions) if each.refused is not None}
    later = tuple(
        Later(place, *each) for place, partition in enumerate(partitions) for each in partition.later
    )
    return end, [each.landed for each in partitions], refused, tuple(later)


class _Partition:
    """A lot, and how far it is sent and landed."""

    def __init__(self, lot: Lot, forgotten_up_to_ms: int) -> None:
        self.number = lot.partition
        self.together_bytes = lot.together_bytes
        #: The bytes of each batch.
        self.views, counts, self.times_ms = _columns_of(lot)
        #: The bytes before each batch, and the offset at which it has to land; also behind the last.
        self.starts = list(accumulate(map(len, self.views), initial=0))
        self.offsets = list(accumulate(counts, initial=lot.base_offset))
        self.forgotten_up_to_ms = forgotten_up_to_ms
        self.has_old = min(self.times_ms, default=_NO_TIME_MS) <= forgotten_up_to_ms
        self.newest_ms = lot.newest_ms
        self.next = self.landed = self.in_flight = 0
        self.refused: Refused | None = None
        self.lands_later = lot.lands_later
        #: Each batch that landed later than it was expected, and where.
        self.later: list[tuple[int, int]] = []
        self._moved = 0

    @property
    def may_send(self) -> bool:
        """Whether the next batch may go out now; see the rules of :mod:`shoal.client.send`."""
        if not self.in_flight:
            return True
        forgotten_up_to_ms = self.forgotten_up_to_ms
        if self.newest_ms is None or self.newest_ms <= forgotten_up_to_ms:
            return False
        return not self.has_old or min(self.times_ms[self.landed : self.next]) > forgotten_up_to_ms

    def take(self) -> _Part:
        """Take the next batch for a request, or several."""
        first = self.next
        self.next += 1
        if self.together_bytes:
            behind = bisect_right(self.starts, self.starts[first] + self.together_bytes) - 1
            self.next = max(self.next, behind)
        self.in_flight += 1
        return _Part(self, first, self.next)

    def has_landed(self, first: int, base_offset: int) -> bool:
        """Whether a batch landed where the batches before it leave it, or may have landed later."""
        ahead = base_offset - self.offsets[first] - self._moved
        if ahead > 0 and self.lands_later:
            self.later.append((first, base_offset))
            self._moved += ahead
            return True
        return not ahead

    def land(self, end: int) -> None:
        """Count the batches of the oldest request."""
        oldest_ms = min(self.times_ms[self.landed : end])
        self.newest_ms = oldest_ms if oldest_ms >= 0 else None
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
        self, connection: Connection, listing: TopicListing, lots: Sequence[Lot], limits: Limits, gate: Gate
    ) -> None:
        self.partitions = [_Partition(lot, limits.forgotten_up_to_ms) for lot in lots]
        self._connection = connection
        self._listing = listing
        self._limits = limits
        self._gate = gate
        #: The partitions that have batches to send, in their turn.
        self._ready = deque(each for each in self.partitions if each.views)
        #: The parts of each request without a response; the oldest first.
        self._in_flight: deque[list[_Part]] = deque()
        topics = dict.fromkeys(lot.partition.topic for lot in lots)
        self._topic_places = {topic: place for place, topic in enumerate(topics)}
        self._largest = connection.sizes.largest(ApiKey.PRODUCE)
        self._end: str | None = None
        self._socket_error: OSError | None = None

    def run(self) -> str | ShoalError | None:
        """Send all lots, and return once no response is to come."""
        while True:
            if self._end is None and not self._is_cut and len(self._in_flight) <= REFILL_AT:
                self._send_some()
            if not self._in_flight:
                break
            try:
                self._receive()
            except ShoalError as error:
                return error
        return self._end if self._socket_error is None else self._connection.fail(self._socket_error)

    @property
    def _is_cut(self) -> bool:
        """Whether a send ended within a request, or may have."""
        return self._end == "cut" or self._socket_error is not None

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
        self._socket_error = sent.error
        if sent.error is None and sent.whole < len(requests):
            self._end = "cut" if sent.is_cut else "gate closed"

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
        parts.sort(key=lambda part: self._topic_places[part.partition.number.topic])
        return parts

    def _encode(self, correlation_id: int, parts: Sequence[_Part]) -> list[bytes | memoryview]:
        return encode_produce_request(
            self._listing.by_topic(
                {part.partition.number: part.partition.views[part.first : part.end] for part in parts}
            ),
            version=self._listing.version,
            correlation_id=correlation_id,
            client_id=self._connection.client_id,
            acks=self._limits.acks,
            timeout_ms=self._limits.timeout_ms,
        )

    def _receive(self) -> None:
        """Receive one response at least, and compare those that are whole."""
        while True:
            frame = self._connection.receive()
            parts = self._in_flight.popleft()
            outcomes = self._outcomes_in(frame, parts)
            for part in parts:
                _compare(part, outcomes[part.partition.number])
            if not self._connection.is_answered:
                break
        # A request of a send that did not end may have left as a whole: the bytes may be its response.
        if not self._in_flight and not self._is_cut and self._connection.is_readable:
            raise self._fault("bytes without a request")

    def _outcomes_in(
        self, frame: memoryview, parts: Sequence[_Part]
    ) -> Mapping[tuple[str, int], ProduceOutcome]:
        try:
            outcomes = {
                each[:2]: each
                for each in decode_produce_response(
                    frame, self._listing.version, self._listing.names, len(parts)
                )
            }
        except ProtocolError as error:
            raise self._fault(f"a response that does not fit its PRODUCE request: {error}") from error
        if len(outcomes) != len(parts) or any(part.partition.number not in outcomes for part in parts):
            raise self._fault("a response to other partitions than its PRODUCE request has")
        return outcomes

    def _fault(self, what: str) -> ProtocolError:
        """Close the connection, and return the error to raise."""
        self._connection.close()
        return ProtocolError(f"{self._connection.address} sent {what}")


def _compare(part: _Part, outcome: ProduceOutcome) -> None:
    """Compare the answer about a part of a request with the predicted offset."""
    partition = part.partition
    partition.in_flight -= 1
    if partition.refused is not None:
        return  # the log's end has the outcome of what was in flight behind a refused request
    if not outcome.error_code and partition.has_landed(part.first, outcome.base_offset):
        partition.land(part.end)
        return
    partition.refused = Refused(
        part.first, part.end, outcome.error_code, outcome.base_offset, outcome.error_message
    )
