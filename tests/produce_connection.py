"""Produce requests with any batches, as a test lists them; no client of shoal's sends all of these."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from shoal.client.connection import Connection, version_or_close
from shoal.client.lot import ACKS_ALL
from shoal.client.multi_batch import query_multi_batch
from shoal.client.topic_listing import TopicListing
from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import ProduceOutcome, decode_produce_response, encode_produce_request
from shoal.topic_partition import TopicPartition

__all__ = ["ProduceConnection"]

_new = tuple.__new__

Outcomes: TypeAlias = dict[TopicPartition, ProduceOutcome]


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
        topic_ids: Mapping[TopicPartition, uuid.UUID | None] | None = None,
    ) -> None:
        """
        Take over a connection.

        Args:
            connection: The connection to the partitions' leader; :meth:`close` closes it.
            timeout_ms: The broker's limit for the acknowledgments of the in-sync replicas.
            topic_ids: The topic's id of each partition in the requests. If all are known and the broker
                supports it, requests list topics by id. The broker then refuses a topic that was created
                again.

        Raises:
            ProtocolError: The broker supports no version of Produce that shoal does. The connection is
                closed.

        """
        self._connection = connection
        self._timeout_ms = timeout_ms
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

    def send(self, batches: Mapping[TopicPartition, Sequence[memoryview]]) -> None:
        """Send one request with all batches."""
        correlation_id = self._connection.next_correlation_id()
        parts = encode_produce_request(
            self._listing.by_topic(batches),
            version=self._listing.version,
            correlation_id=correlation_id,
            client_id=self._connection.client_id,
            acks=ACKS_ALL,
            timeout_ms=self._timeout_ms,
        )
        self._sent.append(frozenset(batches))
        self._connection.send_parts(parts, ApiKey.PRODUCE, correlation_id)

    def receive(self) -> Outcomes:
        """
        Wait for the response to the oldest request.

        Returns:
            The outcome of each partition's batches.

        Raises:
            ProtocolError: The response is malformed, or has other partitions than the request.

        """
        frame, partitions = self._connection.receive(), self._sent.popleft()
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
