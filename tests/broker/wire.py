"""
A client that sends exactly the test's requests, valid or not, over one connection.

Tests run it against any broker, of which it has only the address.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response, encode_request, request_class
from shoal.protocol.fetch import FetchedPartition, FetchResponse, decode_fetch_response
from tests.topic_ids import NAMES

__all__ = ["Wire", "framed"]

#: Nothing that a test waits for takes longer, in seconds.
PATIENCE_S = 120

_COORDINATOR_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def listed(topic: str | uuid.UUID, name: str) -> dict[str, Any]:
    """Return the field that lists a topic: its id, as from v13 of Fetch and Produce on, or its name."""
    return {"topic_id": topic} if isinstance(topic, uuid.UUID) else {name: topic}


def framed(frame: bytes) -> bytes:
    """Return a frame behind its size."""
    return struct.pack(">i", len(frame)) + frame


class Wire:
    """One connection; requests go out and responses come back in order."""

    def __init__(self, address: str, client_id: str = "test") -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._with_coordinator: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Bytes

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes | None:
        """Return the next frame without its size, or None if the broker closed the connection."""
        try:
            size = self._receive(4)
            return None if size is None else self._receive(int.from_bytes(size))
        except ConnectionError:
            return None

    def _receive(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            received = self.socket.recv(size - len(data))
            if not received:
                return None
            data += received
        return bytes(data)

    # Messages

    def send(self, api: ApiKey, version: int, **fields: Any) -> None:
        request = request_class(api)(version=version, **fields)
        self.send_bytes(encode_request(request, next(self._correlation_ids), self._client_id))

    def receive(self, api: ApiKey, version: int) -> Any:
        frame = self.receive_frame()
        assert frame is not None, f"the broker closed the connection in place of an answer to {api.name}"
        return decode_response(api, version, memoryview(frame))

    def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        self.send(api, version, **fields)
        return self.receive(api, version)

    # Shortcuts for tests

    def produce(
        self,
        topic: str | uuid.UUID,
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
        entries: Sequence[tuple[str | uuid.UUID, int, bytes | bytearray | None]],
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
        entries: Sequence[tuple[str | uuid.UUID, int, bytes | bytearray | None]],
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
                    **listed(topic, "name"),
                    partition_data=[
                        partition_data(index=partition, records=None if data is None else bytes(data))
                    ],
                )
                for topic, partition, data in entries
            ],
        }

    def fetch(
        self, topic: str | uuid.UUID, offset: int = 0, *, partition: int = 0, **options: Any
    ) -> FetchedPartition:
        """Fetch from one partition."""
        (fetched,) = self.fetch_all([(topic, partition, offset)], **options).partitions
        return fetched

    def fetch_all(self, wanted: Sequence[tuple[str | uuid.UUID, int, int]], **options: Any) -> FetchResponse:
        """Fetch ``(topic, partition, offset)`` entries, each in an entry of its own."""
        self.send_fetch(wanted, **options)
        return self.receive_fetch(options.get("version", 12))

    def receive_fetch(self, version: int) -> FetchResponse:
        frame = self.receive_frame()
        assert frame is not None
        return decode_fetch_response(memoryview(frame), version, NAMES)

    def send_fetch(
        self,
        wanted: Sequence[tuple[str | uuid.UUID, int, int]],
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
        forgotten: Sequence[tuple[str | uuid.UUID, int]] = (),
    ) -> None:
        fetch_topic = request_class(ApiKey.FETCH).FetchTopic
        forgotten_topic = request_class(ApiKey.FETCH).ForgottenTopic
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
                    **listed(topic, "topic"),
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
            forgotten_topics_data=[
                forgotten_topic(**listed(topic, "topic"), partitions=[partition])
                for topic, partition in forgotten
            ],
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
        """Ask for one offset, in v0 for several; return the partition's part of the response."""
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
        if transactional_id:
            # Has a real broker create its topic of transactions.
            self.call_coordinator(ApiKey.FIND_COORDINATOR, 3, key=transactional_id, key_type=1)
        return self.call_coordinator(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    def call_coordinator(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Call until the coordinator is ready; a real one needs a moment to start or to write markers."""
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

    def end_of_epoch(
        self, topic: str, leader_epoch: int, *, current_leader_epoch: int = -1, version: int = 4
    ) -> Any:
        """Request the end offset of a leader epoch of partition 0; return the partition's response."""
        wanted = request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH).OffsetForLeaderTopic
        response = self.call(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            version,
            replica_id=-1,
            topics=[
                wanted(
                    topic=topic,
                    partitions=[
                        wanted.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
                        )
                    ],
                )
            ],
        )
        return response.topics[0].partitions[0]

    def delete_records(self, topic: str, before_offset: int) -> Any:
        """Delete the records of partition 0 before an offset; return the partition's part of the response."""
        wanted = request_class(ApiKey.DELETE_RECORDS).DeleteRecordsTopic
        response = self.call(
            ApiKey.DELETE_RECORDS,
            2,
            topics=[
                wanted(
                    name=topic,
                    partitions=[wanted.DeleteRecordsPartition(partition_index=0, offset=before_offset)],
                )
            ],
            timeout_ms=10_000,
        )
        return response.topics[0].partitions[0]

    def commit(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        member: str = "",
        instance: str | None = None,
        generation: int = -1,
        metadata: str | None = "",
        partition: int = 0,
        others: Sequence[int] = (),
        retention_time_ms: int = -1,
        version: int = 8,
    ) -> ErrorCode:
        """Commit a position in one partition, and the same in others; return the error of the first."""
        wanted = request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
        self._find_coordinator(group)
        response = self.call(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_time_ms,
            topics=[
                wanted(
                    name=topic,
                    partitions=[
                        wanted.OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata=metadata,
                        )
                        for number in (partition, *others)
                    ],
                )
            ],
        )
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def committed(self, group: str, topic: str, *, require_stable: bool = False) -> Any:
        """Read a group's position in partition 0."""
        wanted = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestTopic
        self._find_coordinator(group)
        response = self.call(
            ApiKey.OFFSET_FETCH,
            7,
            group_id=group,
            topics=[wanted(name=topic, partition_indexes=[0])],
            require_stable=require_stable,
        )
        assert response.error_code == ErrorCode.NONE, response
        return response.topics[0].partitions[0]

    def _find_coordinator(self, group: str) -> None:
        """Have a real broker create its offsets topic, and wait until it can serve this group."""
        if group in self._with_coordinator:
            return
        self.call_coordinator(ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
        # Before Kafka 4, Heartbeat succeeds while the coordinator still loads the group.
        self.call_coordinator(ApiKey.LEAVE_GROUP, 2, group_id=group, member_id="nobody")
        self._with_coordinator.add(group)

    def join(
        self,
        group: str,
        *,
        member: str = "",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 10_000,
        version: int = 5,
        wait: bool = True,
    ) -> Any:
        """Send JoinGroup; without ``wait`` the answer is left to :meth:`receive`."""
        self._find_coordinator(group)
        protocol = request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol
        self.send(
            ApiKey.JOIN_GROUP,
            version,
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                protocol(name=name, metadata=metadata)
                for name, metadata in (protocols if protocols is not None else {"range": b"mine"}).items()
            ],
            reason=None,
        )
        return self.receive(ApiKey.JOIN_GROUP, version) if wait else None

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        *,
        instance: str | None = None,
        assignments: dict[str, bytes] | None = None,
        protocol: str | None = "range",
        version: int = 5,
        wait: bool = True,
    ) -> Any:
        """Send SyncGroup; without ``wait`` the answer is left to :meth:`receive`."""
        assignment = request_class(ApiKey.SYNC_GROUP).SyncGroupRequestAssignment
        self.send(
            ApiKey.SYNC_GROUP,
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                assignment(member_id=name, assignment=data) for name, data in (assignments or {}).items()
            ],
        )
        return self.receive(ApiKey.SYNC_GROUP, version) if wait else None

    def heartbeat(
        self, group: str, member: str, generation: int, *, instance: str | None = None
    ) -> ErrorCode:
        response = self.call(
            ApiKey.HEARTBEAT,
            4,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        return ErrorCode(response.error_code)

    def leave(self, group: str, member: str, *, instance: str | None = None) -> ErrorCode:
        identity = request_class(ApiKey.LEAVE_GROUP).MemberIdentity
        response = self.call(
            ApiKey.LEAVE_GROUP,
            4,
            group_id=group,
            members=[identity(member_id=member, group_instance_id=instance)],
        )
        return ErrorCode(response.members[0].error_code)

    def describe_group(self, group: str) -> Any:
        response = self.call(ApiKey.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False)
        return response.groups[0]
