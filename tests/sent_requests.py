"""Record the requests of tasks inside the client, because a broker does not see requests that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from shoal.client import send, send_in_python
from shoal.client.connection import Connection
from shoal.client.lot import ACKS_ALL, Gate, Limits, Lot, Sent
from shoal.mirroring.task import sender
from shoal.protocol.produce import decode_produce_response, encode_produce_request
from shoal.topic_partition import TopicPartition

__all__ = ["SentRequest", "SentRequests"]


class SentRequest(NamedTuple):
    """
    A request of Produce.

    Attributes:
        batches: The buffers of each partition.
        is_marked: Whether its client id asks for several batches.
        before: The requests that were in flight when it was made.

    """

    batches: Mapping[TopicPartition, Sequence[memoryview]]
    is_marked: bool
    before: Sequence[Mapping[TopicPartition, Sequence[memoryview]]]


class SentRequests:
    """
    The requests of all tasks of this process, which send by Python's sender.

    Attributes:
        requests: In the order in which they were made.

    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[SentRequest] = []
        self._in_flight: deque[Mapping[TopicPartition, Sequence[memoryview]]] = deque()
        self._names: dict[object, str] = {}

        def recorded(connection: Connection, lots: Sequence[Lot], limits: Limits, gate: Gate) -> Sent:
            self._names |= {lot.topic_id: lot.partition.topic for lot in lots}
            self._in_flight.clear()
            return send.send(connection, lots, limits, gate)

        def encode(topics: Mapping[Any, Any], **fields: Any) -> list[bytes | memoryview]:
            if fields["acks"] == ACKS_ALL:  # not a question for several batches
                self._take(topics, fields["client_id"])
            return encode_produce_request(topics, **fields)

        def decode(*args: Any) -> Any:
            if self._in_flight:
                self._in_flight.popleft()
            return decode_produce_response(*args)

        monkeypatch.setattr(send, "NATIVE", None)
        monkeypatch.setattr(sender, "send", recorded)
        monkeypatch.setattr(send_in_python, "encode_produce_request", encode)
        monkeypatch.setattr(send_in_python, "decode_produce_response", decode)

    def _take(self, topics: Mapping[Any, Any], client_id: str) -> None:
        batches = {
            TopicPartition(self._names.get(topic, topic), number): [
                memoryview(bytes(memoryview(view))) for view in views
            ]
            for topic, partitions in topics.items()
            for number, views in partitions
        }
        is_marked = client_id.startswith("shoal-multi-batch")
        self.requests.append(SentRequest(batches, is_marked, tuple(self._in_flight)))
        self._in_flight.append(batches)
