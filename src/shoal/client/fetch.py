"""Fetch record sets from one leader, the next request under way while one is worked on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ProtocolError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..protocol.fetch import FetchResponse, decode_fetch_response
from .config import IsolationLevel
from .connection import Connection, ReceiveBuffer, version_or_close
from .metadata import TopicPartition

__all__ = ["FetchFrom", "Fetcher"]

#: What a response needs besides record sets; a generous guess.
_RESPONSE_OVERHEAD = 64 * 1024

#: A partition may always send this much, so that any batch of the default
#: max.message.bytes (1 MiB + 12) fits wherever in the request it stands.
_SMALLEST_PARTITION_MAX_BYTES = 1024 * 1024 + 4096


class FetchFrom(NamedTuple):
    """
    Where to go on in a partition.

    With the leader's epoch, a broker that leads it in another epoch refuses
    (KIP-320): who asks then finds out whether the log is still the same.
    """

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1


class Fetcher:
    """
    Fetches on one connection, into one buffer.

    :meth:`send` and :meth:`receive` alternate. The record sets of a response
    are views of the buffer: valid until the next :meth:`receive`.

    """

    def __init__(
        self, connection: Connection, *, buffer_bytes: int, isolation_level: IsolationLevel, max_wait_ms: int
    ) -> None:
        """
        Take over a connection.

        Args:
            connection: To the partitions' leader; closed with :meth:`close`.
            buffer_bytes: The most that one response may carry, a single
                larger batch excepted.
            isolation_level: What is seen of transactions.
            max_wait_ms: How long the broker may wait for the first byte.

        Raises:
            ProtocolError: The broker speaks no version of Fetch that we do; the connection is closed.

        """
        self._connection = connection
        self._buffer = ReceiveBuffer(buffer_bytes)
        self._max_bytes = buffer_bytes - _RESPONSE_OVERHEAD
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms
        self._version = version_or_close(connection, ApiKey.FETCH)

    @property
    def is_waiting(self) -> bool:
        """Whether a response is to be received."""
        return self._connection.in_flight > 0

    def send(self, wanted: Sequence[FetchFrom]) -> None:
        """
        Ask for what follows these offsets.

        The broker fills a response in this order: who comes first gets a
        batch of any size, who comes last may get nothing.

        """
        request = request_class(ApiKey.FETCH)
        topic = request.FetchTopic
        partition_max_bytes = max(_SMALLEST_PARTITION_MAX_BYTES, self._max_bytes // len(wanted))
        by_topic = defaultdict(list)
        for (name, number), offset, leader_epoch in wanted:
            by_topic[name].append(
                topic.FetchPartition(
                    partition=number,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        self._connection.send(
            ApiKey.FETCH,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation_level.value,
            session_id=0,
            session_epoch=-1,  # no session
            topics=[topic(topic=name, partitions=entries) for name, entries in by_topic.items()],
            forgotten_topics_data=[],
            rack_id="",
        )

    def receive(self) -> FetchResponse:
        """Receive the answer to the last :meth:`send`; what the one before referred to is overwritten."""
        frame = self._connection.receive(self._buffer)
        try:
            return decode_fetch_response(frame, self._version)
        except ProtocolError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()
