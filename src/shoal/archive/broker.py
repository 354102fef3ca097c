"""
Answers Kafka's requests from an archive, over a pair of sockets in this process.

So whatever reads a cluster reads an archive: a mirror, a comparison, an inspection. The archive is one broker
that leads all partitions, and coordinates the groups whose offsets were archived. Its requests are in
:data:`_VERSIONS`. Each connection has a thread of its own.

An answer has no room for the sentence of an error. It is kept, by the partition, for :func:`problem_of`.
"""

from __future__ import annotations

import contextlib
import mmap
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ..error_codes import ErrorCode
from ..errors import BeingDownloaded, Disconnected, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import (
    decode_request,
    encode_response,
    read_request_header,
    response_class,
)
from ..protocol.fetch import FetchedPartition, FetchResponse, encode_fetch_response
from ..records.compression import DEFAULT_LIMIT_BYTES
from ..topic_partition import TopicPartition
from . import downloads
from .description import DamagedObject
from .directory import Archive, ArchivedTopic
from .files import FileRange, storage_failed
from .group_answers import GroupAnswers
from .names import ARCHIVE_TOPICS
from .reading import PartitionReader

__all__ = ["ARCHIVE_HOST", "ARCHIVE_PORT", "connect", "problem_of"]

T = TypeVar("T")

#: The name and port of the only broker; nothing connects to them.
ARCHIVE_HOST, ARCHIVE_PORT = "archive.invalid", 9092
_NODE = 0

_VERSIONS = {
    ApiKey.API_VERSIONS: (0, 0),
    ApiKey.METADATA: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.FETCH: (4, 11),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (3, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.LIST_GROUPS: (4, 4),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.OFFSET_FETCH: (8, 8),
}

_LATEST = -1
_SET_ON_TOPIC, _DEFAULT = 1, 5
_TOPIC_RESOURCE = 2

#: How old a listing may be.
_FRESH_S = 10.0

#: An object is read against its digest before it is used, which takes seconds. An answer waits for no more.
_LONGEST_ANSWER_S = 5.0

_SIZE = struct.Struct(">i")

#: The error of each partition whose last answer was one; None stands for all of an archive.
_problems: dict[tuple[str, TopicPartition | None], ShoalError] = {}


def problem_of(url: str, about: TopicPartition | str | None) -> ShoalError | None:
    """
    Return why an archive's last answer about a partition, or about its topics, was an error.

    Args:
        url: Its directory.
        about: The partition; None for all of the archive; a topic that it lists and that cannot be read.

    """
    if isinstance(about, str):
        return _listings[url].damaged.get(about) if url in _listings else None
    return _problems.get((url, about))


def connect(archive: Archive, url: str, groups_by_ms: int | None = None) -> socket.socket:
    """
    Return a socket that is connected to an archive's broker.

    Args:
        url: The archive's directory, for :func:`problem_of`.
        groups_by_ms: The time whose committed offsets the broker has; None for the newest.

    """
    ours, theirs = socket.socketpair()
    served = _Served(archive, url, theirs, groups_by_ms)
    threading.Thread(target=served.run, name="shoal-archive", daemon=True).start()
    return ours


@dataclass(slots=True)
class _Listing:
    """The topics of an archive, the same for all connections: none has an older creation than another."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    damaged: Mapping[str, ShoalError] = field(default_factory=dict)
    at: float = float("-inf")


_listings: dict[str, _Listing] = {}


@dataclass(slots=True)
class _Partition:
    reader: PartitionReader
    looked_at: float

    @property
    def end(self) -> int:
        return self.reader.objects.end_offset or 0

    @property
    def start(self) -> int:
        return self.reader.objects.start_offset or 0


class _Served:
    """One connection."""

    def __init__(self, archive: Archive, url: str, client: socket.socket, groups_by_ms: int | None) -> None:
        self._archive = archive
        groups = GroupAnswers(archive.store, groups_by_ms)
        self._url = url
        self._client = client
        self._listing = _listings.setdefault(url, _Listing())
        #: The memory of all answers with batches. It is mapped, so it returns to the system.
        self._room = memoryview(b"")
        #: By topic, creation and number.
        self._partitions: dict[tuple[str, str, int], _Partition] = {}
        #: The objects that the answer lacks, since they are being downloaded.
        self._awaited: list[str] = []
        self._answers: Mapping[int, Callable[[Any], Any]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._leader_epochs,
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
            ApiKey.LIST_GROUPS: groups.list_groups,
            ApiKey.FIND_COORDINATOR: self._find_coordinators,
            ApiKey.OFFSET_FETCH: groups.committed_offsets,
            ApiKey.FETCH: self._fetch,
        }

    def run(self) -> None:
        with self._client, contextlib.suppress(OSError):
            try:
                while (frame := self._receive()) is not None:
                    self._send(self._answer(frame))
            except ShoalError as error:
                _problems[self._url, None] = error
            finally:
                for each in self._partitions.values():
                    each.reader.close()

    def _receive(self) -> memoryview | None:
        head = self._client.recv(_SIZE.size, socket.MSG_WAITALL)
        if len(head) < _SIZE.size:
            return None
        size = _SIZE.unpack(head)[0]
        frame = self._client.recv(size, socket.MSG_WAITALL)
        return memoryview(frame) if len(frame) == size else None

    def _answer(self, frame: memoryview) -> Sequence[bytes | memoryview | FileRange]:
        header = read_request_header(frame)
        try:
            response = self._answers[header.api_key](decode_request(header, frame))
            if isinstance(response, FetchResponse):
                return encode_fetch_response(response, header.api_version, header.correlation_id)
            return [encode_response(response, header.correlation_id, header.api_version)]
        except ShoalError:
            raise
        except Exception as error:
            raise _unforeseen(self._url, f"{ApiKey(header.api_key).name} has no answer", error) from error

    def _send(self, parts: Sequence[bytes | memoryview | FileRange]) -> None:
        for part in parts:
            if isinstance(part, FileRange):
                part.send(self._client)
            else:
                self._client.sendall(part)

    # Topics

    def _find(self, name: str) -> ArchivedTopic | None:
        """Return a topic; the listing may be old if it has the topic."""
        listing = self._listing
        with listing.lock:
            is_known = name in listing.topics or name in listing.damaged
            if not is_known or time.monotonic() - listing.at > _FRESH_S:
                listing.topics, listing.damaged = self._archive.topics(), self._archive.damaged
                listing.at = time.monotonic()
                _problems.pop((self._url, None), None)
        return listing.topics.get(name)

    def _api_versions(self, request: Any) -> Any:
        message = response_class(ApiKey.API_VERSIONS)
        served = [
            message.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
            for key, (oldest, newest) in _VERSIONS.items()
        ]
        return message(api_keys=served)

    def _metadata(self, request: Any) -> Any:
        message = response_class(ApiKey.METADATA)
        if request.topics is None:
            self._find("")  # lists all
            names = [*self._listing.topics, *self._listing.damaged]
        else:
            names = list(dict.fromkeys(each.name for each in request.topics))
        return message(
            brokers=[message.MetadataResponseBroker(node_id=_NODE, host=ARCHIVE_HOST, port=ARCHIVE_PORT)],
            cluster_id=self._archive.id,
            controller_id=_NODE,
            topics=[self._described(name) for name in names],
        )

    def _described(self, name: str) -> Any:
        message = response_class(ApiKey.METADATA).MetadataResponseTopic
        topic = self._find(name)
        if topic is None and name not in self._listing.damaged:
            return message(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # One that cannot be read has one partition here, about which each answer is why. So a reader of all
        # topics learns of it.
        replicas = list(range(topic.replication_factor if topic else 1))
        partitions = [
            message.MetadataResponsePartition(
                partition_index=number,
                leader_id=_NODE,
                leader_epoch=0,
                replica_nodes=replicas,
                isr_nodes=replicas,
            )
            for number in range(topic.partitions if topic else 1)
        ]
        described = message(name=name, partitions=partitions)
        if topic is not None and topic.topic_id is not None:
            described.topic_id = topic.topic_id
        return described

    def _find_coordinators(self, request: Any) -> Any:
        message = response_class(ApiKey.FIND_COORDINATOR)
        coordinators = [
            message.Coordinator(key=each, node_id=_NODE, host=ARCHIVE_HOST, port=ARCHIVE_PORT)
            for each in request.coordinator_keys
        ]
        return message(coordinators=coordinators)

    def _describe_configs(self, request: Any) -> Any:
        found = [self._configs_of(each.resource_type, each.resource_name) for each in request.resources]
        return response_class(ApiKey.DESCRIBE_CONFIGS)(results=found)

    def _configs_of(self, kind: int, name: str) -> Any:
        message = response_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResult
        answer = message(resource_type=kind, resource_name=name)
        topic = self._find(name) if kind == _TOPIC_RESOURCE else None
        if topic is not None:
            answer.configs = [
                message.DescribeConfigsResourceResult(name=key, value=value, config_source=source)
                for configs, source in ((topic.defaults, _DEFAULT), (topic.configs, _SET_ON_TOPIC))
                for key, value in configs.items()
            ]
        elif kind == _TOPIC_RESOURCE and name not in self._listing.damaged:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer

    # Partitions

    def _partition(self, topic: str, number: int) -> _Partition | None:
        """Return a partition whose listing is fresh; None if the archive has no such partition."""
        found = self._find(topic)
        if topic in self._listing.damaged:
            raise self._listing.damaged[topic]
        if found is None or not 0 <= number < found.partitions:
            return None
        key, now = (topic, found.directory_id, number), time.monotonic()
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = _Partition(PartitionReader(self._archive.objects(*key)), now)
        elif now - known.looked_at > _FRESH_S:
            known.reader.objects.look()
            known.looked_at = now
        return known

    def _try(self, topic: str, number: int, ask: Callable[[_Partition], T]) -> tuple[int, T | None]:
        """Return the code of a partition's answer, and the answer; the sentence of an error is kept."""
        key = self._url, TopicPartition(topic, number)
        try:
            partition = self._partition(topic, number)
            if partition is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
            found = ask(partition)
            _problems.pop(key, None)
            return ErrorCode.NONE, found
        except Exception as caught:
            where = f"{self._url}/{ARCHIVE_TOPICS}/{topic}"
            about = f"partition {number} cannot be read"
            error = caught if isinstance(caught, ShoalError) else _unforeseen(where, about, caught)
            _problems[key] = error
            if isinstance(error, BeingDownloaded):
                self._awaited.append(error.address)
            may_pass = isinstance(error, Disconnected)
            return ErrorCode.KAFKA_STORAGE_ERROR if may_pass else ErrorCode.CORRUPT_MESSAGE, None

    def _list_offsets(self, request: Any) -> Any:
        """Wait for the objects with the wanted times, but no longer than any client does: it asks again."""
        until = time.monotonic() + _LONGEST_ANSWER_S
        while True:
            self._awaited.clear()
            answer, left_s = self._offsets(request, until), until - time.monotonic()
            if not self._awaited or left_s <= 0:
                return answer
            downloads.wait_for_any(self._awaited, left_s)

    def _offsets(self, request: Any, until: float) -> Any:
        message = response_class(ApiKey.LIST_OFFSETS)
        topic = message.ListOffsetsTopicResponse

        def offset_of(name: str, wanted: Any) -> Any:
            code, found = self._try(
                name, wanted.partition_index, partial(_offset_at, wanted.timestamp, until)
            )
            offset, timestamp = found or (-1, -1)
            return topic.ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index, error_code=code, offset=offset, timestamp=timestamp
            )

        return message(
            topics=[
                topic(name=each.name, partitions=[offset_of(each.name, one) for one in each.partitions])
                for each in request.topics
            ]
        )

    def _leader_epochs(self, request: Any) -> Any:
        """Return the end for every epoch: an archive is never truncated."""
        message = response_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        topic = message.OffsetForLeaderTopicResult

        def end_of(name: str, wanted: Any) -> Any:
            code, end = self._try(name, wanted.partition, lambda partition: partition.end)
            return topic.EpochEndOffset(
                partition=wanted.partition,
                error_code=code,
                leader_epoch=wanted.leader_epoch,
                end_offset=-1 if end is None else end,
            )

        return message(
            topics=[
                topic(topic=each.topic, partitions=[end_of(each.topic, one) for one in each.partitions])
                for each in request.topics
            ]
        )

    # Fetch

    def _fetch(self, request: Any) -> FetchResponse:
        began_at = time.monotonic()
        self._awaited.clear()
        if request.max_bytes > len(self._room):
            self._room = memoryview(mmap.mmap(-1, request.max_bytes))
        room = self._room[: request.max_bytes]
        found = []
        is_empty = True
        for topic in request.topics:
            for wanted in topic.partitions:
                may_read = is_empty or time.monotonic() - began_at < _LONGEST_ANSWER_S
                fetched = self._fetch_from(
                    topic.topic, wanted, room if may_read else room[:0], request.isolation_level
                )
                room = room[len(fetched.record_set) :]
                may_pass = fetched.error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
                is_empty = is_empty and not len(fetched.record_set) and may_pass
                found.append(fetched)
        if is_empty:
            self._wait(request.max_wait_ms / 1000)
        return FetchResponse(0, 0, 0, found)

    def _wait(self, seconds: float) -> None:
        """Wait before an answer without batches, until an object is there or the client hangs up."""
        if self._awaited:
            downloads.wait_for_any(self._awaited, seconds)
        else:
            select.select([self._client], [], [], seconds)

    def _fetch_from(
        self, topic: str, wanted: Any, room: memoryview, isolation_level: int
    ) -> FetchedPartition:
        number, offset = wanted.partition, wanted.fetch_offset

        def fetch(partition: _Partition) -> FetchedPartition:
            start, end = partition.start, partition.end
            code, record_set = ErrorCode.NONE, room[:0]
            aborted: Sequence[tuple[int, int]] = ()
            if not start <= offset <= end:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif len(room) and (
                read := partition.reader.read(offset, room[: max(1, wanted.partition_max_bytes)])
            ):
                record_set, aborted = read.record_set, read.aborted if isolation_level else ()
            return FetchedPartition(topic, number, code, end, end, start, aborted, record_set)

        code, found = self._try(topic, number, fetch)
        return found or FetchedPartition(topic, number, code, -1, -1, -1, (), room[:0])


def _offset_at(timestamp: int, until: float, partition: _Partition) -> tuple[int, int] | None:
    """
    Return the offset of a time, or of an end of the log; and the time of its record, if it has one.

    Raises:
        BeingDownloaded: The answer has taken too long to look up another time. The client asks again.

    """
    if timestamp >= 0:
        reader = partition.reader
        if time.monotonic() >= until and not reader.knows(timestamp):
            where = f"{reader.objects.store.url}/{reader.objects.path}"
            raise BeingDownloaded(where, "a time is looked up after others", 0.0)
        return reader.offset_at(timestamp, DEFAULT_LIMIT_BYTES)
    return partition.end if timestamp == _LATEST else partition.start, -1


def _unforeseen(where: str, what: str, error: Exception) -> ShoalError:
    """Return the sentence of an error that no check has found before."""
    if isinstance(error, OSError):
        return storage_failed(where, error)
    return DamagedObject(where, f"{what}: {type(error).__name__}: {error!s:.200}")
