"""Produce batches to one leader with several requests in flight."""

from __future__ import annotations

import os
import uuid
from array import array
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..errors import Disconnected, ProtocolError, ShoalError
from ..native import NATIVE, HandedBack, LotRow
from ..protocol.apis import ApiKey
from ..protocol.produce import (
    FLEXIBLE_FROM,
    ProduceOutcome,
    decode_produce_response,
    encode_produce_request,
)
from ..protocol.topic_ids import write_topic
from ..topic_partition import TopicPartition
from .connection import Connection, version_or_close
from .multi_batch import query_multi_batch
from .pump import pump
from .topic_listing import TopicListing

__all__ = ["ACKS_ALL", "NO_ACKS", "ProduceConnection", "Pumped", "PumpedLot"]

ACKS_ALL = -1
NO_ACKS = 0

_new = tuple.__new__

Outcomes: TypeAlias = dict[TopicPartition, ProduceOutcome]


class PumpedLot(NamedTuple):
    """
    The batches of a partition for :meth:`ProduceConnection.pump`, in the order of their offsets.

    Attributes:
        partition: A partition of the connection's topics.
        batches: The buffers that have them, one behind the other.
        entries: An :data:`~shoal.records.ENTRY` for each batch.
        base_offset: The offset at which the first has to land.
        newest_ms: A timestamp in the partition's producer state; None if nothing has landed yet.
        together_bytes: The most bytes of its batches in one request; 0 for one batch.

    """

    partition: TopicPartition
    batches: Sequence[memoryview]
    entries: bytes
    base_offset: int
    newest_ms: int | None
    together_bytes: int


@dataclass(frozen=True, slots=True)
class Pumped:
    """
    The result of a pump; nothing is in flight.

    Attributes:
        landed: The number of batches of each lot that landed at their offsets.
        handed_back: The requests that were in flight, and are not in ``landed``; the oldest first. See
            :data:`shoal.native.HandedBack`.
        failure: The reason why the connection is closed; None if it is open.

    """

    landed: Sequence[int]
    handed_back: Sequence[HandedBack]
    failure: ShoalError | None


class ProduceConnection:
    """
    Sends batches as they are, and returns the outcome of each.

    Batches are not copied: their views must not change until they are acknowledged.

    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_ms: int,
        acks: int = ACKS_ALL,
        topic_ids: Mapping[TopicPartition, uuid.UUID | None] | None = None,
    ) -> None:
        """
        Take over a connection.

        Args:
            connection: The connection to the partitions' leader; :meth:`close` closes it.
            timeout_ms: The broker's limit for the acknowledgments of the in-sync replicas.
            acks: The required acknowledgments; with :data:`NO_ACKS` there are no responses.
            topic_ids: The topic's id of each partition in the requests. If all are known and the broker
                supports it, requests list topics by id. The broker then refuses a topic that was created
                again.

        Raises:
            ProtocolError: The broker supports no version of Produce that shoal does. The connection is
                closed.

        """
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._acks = acks
        self._listing = TopicListing.of(version_or_close(connection, ApiKey.PRODUCE), topic_ids)
        self._sent: deque[frozenset[TopicPartition]] = deque()

    @property
    def connection(self) -> Connection:
        """The connection, to wait on."""
        return self._connection

    @property
    def lists_ids(self) -> bool:
        """Whether requests list topics by id, so that the broker refuses a topic that was created again."""
        return bool(self._listing.ids)

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._sent)

    def takes_multi_batch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, bool]:
        """Return whether a request may have several batches of a partition; see :func:`query_multi_batch`."""
        assert not self._sent, "the answers would be taken for others"
        return query_multi_batch(self._connection, partitions, self._listing)

    def pump(
        self,
        lots: Sequence[PumpedLot],
        gate: array[int],
        *,
        max_in_flight: int,
        refill_at: int,
        request_bytes: int,
        forgotten_up_to_ms: int,
    ) -> Pumped | None:
        """
        Send lots, and compare the responses.

        Args:
            lots: At most one of each partition. See :meth:`~shoal.native.Native.pump`, for the others, too.
            gate: Closed by another thread.
            max_in_flight: The most requests in flight.
            refill_at: Sends more once so few are in flight.
            request_bytes: The size of a request that gets no further partition.
            forgotten_up_to_ms: The broker may forget a producer whose last batch is no newer.

        Returns:
            The result; None if the pump cannot use this connection.

        """
        connection, listing = self._connection, self._listing
        if self._sent or not connection.can_be_lent or listing.version < FLEXIBLE_FROM:
            return None
        topics: dict[bytes, int] = {}
        rows = []
        for each in lots:
            partition = each.partition
            topic = write_topic(listing.ids.get(partition, partition.topic), compact=True)
            rows.append(LotRow(topics.setdefault(topic, len(topics)), partition.partition, *each[1:]))
        run = pump if NATIVE is None else NATIVE.pump
        largest = connection.sizes.largest(ApiKey.PRODUCE, request_bytes)
        with connection.lend(gate) as lent:
            end, detail, landed, handed_back, requests = run(
                lent.fileno(),
                list(topics),
                rows,
                version=listing.version,
                client_id=connection.client_id.encode(),
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                correlation_id=connection.skip_correlation_ids(0),
                max_in_flight=max_in_flight,
                refill_at=refill_at,
                request_bytes=request_bytes,
                forgotten_up_to_ms=forgotten_up_to_ms,
                max_answer_bytes=largest,
                wait_ms=int(connection.timeout_s * 1000),
                gate=gate,
            )
        connection.skip_correlation_ids(requests)
        failure = self._failure_of(end, detail, largest)
        if failure is None and any(answer is None for _, answer in handed_back):
            connection.close()  # a part of the request was sent
            failure = Disconnected(str(connection.address), "a request was cut short")
        return Pumped(landed, handed_back, failure)

    def _failure_of(self, end: str, detail: int, largest: int) -> ShoalError | None:
        """Return the error that a pump ended with, and close the connection if it cannot be used any more."""
        connection = self._connection
        match end:
            case "done" | "gate closed" | "unexpected":
                return None
            case "closed":
                return connection.fail(ConnectionResetError("the broker closed the connection"))
            case "timed out":
                return connection.fail(BlockingIOError("no answer"))
            case "failed":
                return connection.fail(OSError(detail, os.strerror(detail)))
        connection.close()
        if end == "too large":
            return connection.sizes.too_large(connection.address, ApiKey.PRODUCE.name, detail, largest)
        fault = {
            "wrong id": "a response to another request than PRODUCE",
            "surplus": "bytes without a request",
        }[end]
        return ProtocolError(f"{connection.address} sent {fault}")

    def outcomes_of(self, frame: bytes, partitions: Collection[TopicPartition]) -> Outcomes:
        """
        Return the outcomes in a response that :meth:`pump` handed back.

        Args:
            frame: The response from the correlation id on.

        Raises:
            ProtocolError: As :meth:`receive`; the connection is closed.

        """
        return self._read_outcomes(memoryview(frame), frozenset(partitions))

    def send(self, batches: Mapping[TopicPartition, Sequence[memoryview]]) -> None:
        """Send one request with all batches."""
        self.prepare(batches)
        self.send_prepared()

    def prepare(self, batches: Mapping[TopicPartition, Sequence[memoryview]]) -> None:
        """Queue a request for :meth:`send_prepared`."""
        version = self._listing.version
        correlation_id = self._connection.next_correlation_id()
        parts = encode_produce_request(
            self._listing.by_topic(batches),
            version=version,
            correlation_id=correlation_id,
            client_id=self._connection.client_id,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
        )
        is_answered = self._acks != NO_ACKS
        if is_answered:
            self._sent.append(frozenset(batches))
        self._connection.prepare_parts(
            parts, ApiKey.PRODUCE, version, correlation_id, is_answered=is_answered
        )

    def send_prepared(self, check: Callable[[], object] | None = None) -> None:
        """Send all queued requests by few system calls; see :meth:`.Connection.send_prepared`."""
        self._connection.send_prepared(check)

    def receive(self) -> Outcomes:
        """
        Wait for the response to the oldest request.

        Returns:
            The outcome of each partition's batches.

        Raises:
            ProtocolError: The response is malformed, or has other partitions than the request.

        """
        return self._read_outcomes(self._connection.receive(), self._sent.popleft())

    def _read_outcomes(self, frame: memoryview, partitions: frozenset[TopicPartition]) -> Outcomes:
        try:
            outcomes = decode_produce_response(
                frame, self._listing.version, self._listing.names, len(partitions)
            )
        except ProtocolError:
            self._connection.close()
            raise
        # The constructor of a named tuple takes twice as long.
        answers = {_new(TopicPartition, each[:2]): each for each in outcomes}
        if answers.keys() != partitions:
            self._connection.close()
            raise ProtocolError(f"{self._connection.address} acknowledged other partitions than were sent")
        return answers

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
