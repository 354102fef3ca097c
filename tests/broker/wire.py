"""
A client that says exactly what a test wants, right or wrong, over one connection.

It knows nothing of the broker but its address.
"""

from __future__ import annotations

import itertools
import socket
import time
from types import TracebackType
from typing import Any, Self

from shoal.errors import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response, encode_request, request_class
from shoal.protocol.fetch import FetchedPartition, FetchResponse, decode_fetch_response

__all__ = ["Wire"]

#: Nothing that a test waits for takes longer, in seconds.
PATIENCE_S = 20

_COORDINATOR_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Wire:
    """One connection; requests go out and responses come back in order."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # Bytes

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_frame(self) -> bytes | None:
        """Return the next frame without its size, or None where the broker closed the connection."""
        try:
            size = self._receive(4)
            return None if size is None else self._receive(int.from_bytes(size))
        except ConnectionError:
            return None

    def _receive(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                return None
            data += received
        return bytes(data)

    # Messages

    def send(self, api: ApiKey, version: int, **fields: Any) -> None:
        request = request_class(api)(version=version, **fields)
        self.send_bytes(encode_request(request, next(self._correlation_ids), "test"))

    def receive(self, api: ApiKey, version: int) -> Any:
        frame = self.receive_frame()
        assert frame is not None, f"the broker closed the connection in place of an answer to {api.name}"
        return decode_response(api, version, memoryview(frame))

    def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        self.send(api, version, **fields)
        return self.receive(api, version)

    # What tests do again and again

    def produce(
        self,
        topic: str,
        record_set: bytes | bytearray | None,
        *,
        partition: int = 0,
        version: int = 11,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Any:
        """Produce to one partition; return its part of the response."""
        response = self.produce_all(
            [(topic, partition, record_set)], version=version, acks=acks, transactional_id=transactional_id
        )
        return response.responses[0].partition_responses[0]

    def produce_all(
        self,
        entries: list[tuple[str, int, bytes | bytearray | None]],
        *,
        version: int = 11,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Any:
        """Produce to partitions in the order given, each in an entry of its own."""
        fields = self.produce_fields(entries, acks=acks, transactional_id=transactional_id)
        return self.call(ApiKey.PRODUCE, version, **fields)

    @staticmethod
    def produce_fields(
        entries: list[tuple[str, int, bytes | bytearray | None]],
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> dict[str, Any]:
        topic_data = request_class(ApiKey.PRODUCE).TopicProduceData
        partition_data = topic_data.PartitionProduceData
        return {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [
                topic_data(
                    name=topic,
                    partition_data=[
                        partition_data(index=partition, records=None if data is None else bytes(data))
                    ],
                )
                for topic, partition, data in entries
            ],
        }

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, **options: Any) -> FetchedPartition:
        """Fetch from one partition."""
        (fetched,) = self.fetch_all([(topic, partition, offset)], **options).partitions
        return fetched

    def fetch_all(self, wanted: list[tuple[str, int, int]], **options: Any) -> FetchResponse:
        """Fetch ``(topic, partition, offset)`` entries, each in an entry of its own."""
        version = options.get("version", 12)
        self.send_fetch(wanted, **options)
        frame = self.receive_frame()
        assert frame is not None
        return decode_fetch_response(memoryview(frame), version)

    def send_fetch(
        self,
        wanted: list[tuple[str, int, int]],
        *,
        version: int = 12,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        min_bytes: int = 0,
        max_wait_ms: int = 0,
        committed: bool = False,
        leader_epoch: int = -1,
        session_id: int = 0,
        session_epoch: int = -1,
    ) -> None:
        fetch_topic = request_class(ApiKey.FETCH).FetchTopic
        self.send(
            ApiKey.FETCH,
            version,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[
                fetch_topic(
                    topic=topic,
                    partitions=[
                        fetch_topic.FetchPartition(
                            partition=partition,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=partition_max_bytes,
                        )
                    ],
                )
                for topic, partition, offset in wanted
            ],
            forgotten_topics_data=[],
            rack_id="",
        )

    def list_offset(
        self,
        topic: str,
        timestamp: int,
        *,
        partition: int = 0,
        version: int = 8,
        committed: bool = False,
        leader_epoch: int = -1,
    ) -> Any:
        """Ask for one offset; return the partition's part of the response."""
        list_topic = request_class(ApiKey.LIST_OFFSETS).ListOffsetsTopic
        response = self.call(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                list_topic(
                    name=topic,
                    partitions=[
                        list_topic.ListOffsetsPartition(
                            partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp
                        )
                    ],
                )
            ],
        )
        return response.topics[0].partitions[0]

    def end_offset(self, topic: str, *, partition: int = 0, committed: bool = False) -> int:
        """Return the high watermark, or the last stable offset."""
        offset: int = self.list_offset(topic, -1, partition=partition, committed=committed).offset
        return offset

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        *,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        producer_epoch: int = -1,
        version: int = 4,
    ) -> Any:
        """Ask for a producer id, and for a transactional id's next epoch."""
        return self.call_coordinator(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    def call_coordinator(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Call until the coordinator is ready: a real one wakes up at the first call, and ends transactions."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = self.call(api, version, **fields)
            if response.error_code not in _COORDINATOR_BUSY or time.monotonic() > deadline:
                return response

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> Any:
        """Create a topic; setting names have ``_`` for ``.``; return the topic's part of the response."""
        topic = request_class(ApiKey.CREATE_TOPICS).CreatableTopic
        response = self.call(
            ApiKey.CREATE_TOPICS,
            7,
            topics=[
                topic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        topic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in config.items()
                    ],
                )
            ],
            timeout_ms=10_000,
            validate_only=False,
        )
        return response.topics[0]
