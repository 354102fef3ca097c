"""
Fetch v0 to v3: one buffer of v2 batches from the broker, old messages to the client, chunk by chunk.

An answer begins with its length, and each record set in it does too. So the gateway needs all record sets of
the broker, in one buffer, before it can send the first byte. It requests at most as much as the buffer holds,
also if the client asks for more; the client receives less, and fetches again. Partitions take turns, since
clients before v3 always list them in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from ...error_codes import ErrorCode
from ...errors import NotConvertible
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...protocol.fetch import (
    LIMITED_FROM,
    MAGIC_1_FROM,
    FetchedPartition,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_response,
)
from ...records.down_conversion import DownConversion
from ...topic_partition import TopicPartition
from ..converting import begin
from ..settings import GatewaySettings
from .request import Part, TranslatedRequest, old_code

__all__ = ["FetchTranslation"]

#: The limit for an answer without its record sets.
_OVERHEAD_BYTES = 1024 * 1024

_NOTHING = memoryview(b"")

_Request = codec.request_class(ApiKey.FETCH)
_Topic = _Request.FetchTopic
_Partition = _Topic.FetchPartition


class _Wanted(NamedTuple):
    offset: int
    max_bytes: int


#: The requested partitions in the client's order.
_Asked = dict[TopicPartition, _Wanted]


class _Passed(NamedTuple):
    """Offsets without records for an old client: it asks from ``start`` on, and is served from ``end`` on."""

    start: int
    end: int


class FetchTranslation:
    """
    The fetches of one client connection.

    The state between two of them has two parts. The first is the order in which partitions were served. The
    second is the offsets that the client cannot pass, because they have only transaction markers or aborted
    records.

    """

    def __init__(self, settings: GatewaySettings, warn: Callable[[str], object]) -> None:
        """
        Begin a connection's fetches.

        Args:
            warn: Receives a sentence for the operator.

        """
        self._settings = settings
        self._warn = warn
        self._turns: dict[TopicPartition, None] = {}
        self._passed: dict[TopicPartition, _Passed] = {}

    def translate(self, request: TranslatedRequest) -> Sequence[Part]:
        """Fetch, and return the answer. Its record sets are converted while they are sent."""
        body = request.body
        version = request.header.api_version
        wanted = {
            TopicPartition(topic.topic, each.partition): _Wanted(each.fetch_offset, each.partition_max_bytes)
            for topic in body.topics
            for each in topic.partitions
        }
        self._forget_others(wanted)
        response = FetchResponse(0, 0, 0, self._fetch(request, body, wanted))
        parts = encode_fetch_response(response, version, request.header.correlation_id)
        return cast(Sequence[Part], parts)

    # From the broker

    def _fetch(self, request: TranslatedRequest, body: Any, wanted: _Asked) -> list[FetchedPartition]:
        """Fetch until there are records, an error, or the client's maximum wait is over."""
        deadline = time.monotonic() + max(body.max_wait_ms, 0) / 1000
        version = request.header.api_version
        magic = 1 if version >= MAGIC_1_FROM else 0
        while True:
            left_ms = int(max(deadline - time.monotonic(), 0) * 1000)
            ordered = wanted if version >= LIMITED_FROM else self._in_turn(wanted)
            response = self._fetch_once(request, body, ordered, left_ms)
            self._end_turns(response)
            converted = self._convert_all(request.upstream.client.network, response, wanted, magic)
            moved = [self._pass_over(each, wanted) for each in converted]
            if not any(moved) or any(len(each.record_set) or each.error_code for each in converted):
                return converted
            if time.monotonic() >= deadline:
                return converted
            del response, converted  # else their buffer would be held beside the next one

    def _fetch_once(
        self, request: TranslatedRequest, body: Any, wanted: _Asked, max_wait_ms: int
    ) -> FetchResponse:
        buffer_bytes = self._settings.buffer_bytes
        version = request.upstream.oldest(ApiKey.FETCH)
        max_bytes = body.max_bytes if request.header.api_version >= LIMITED_FROM else buffer_bytes
        request.upstream.send_for(
            request.header,
            ApiKey.FETCH,
            version,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min(max(body.min_bytes, 0), buffer_bytes),
            max_bytes=min(max(max_bytes, 0), buffer_bytes),
            isolation_level=request.isolation_level.value,
            topics=self._topics(wanted),
        )
        frame = request.upstream.receive_whole(
            max(buffer_bytes, self._settings.largest_batch_bytes) + _OVERHEAD_BYTES
        )
        return decode_fetch_response(frame, version)

    def _topics(self, wanted: _Asked) -> list[Any]:
        """List the partitions in order; a topic is repeated if another topic's partition stands between."""
        topics: list[Any] = []
        for key, (_, max_bytes) in wanted.items():
            if not topics or topics[-1].topic != key.topic:
                topics.append(_Topic(topic=key.topic, partitions=[]))
            entry = _Partition(
                partition=key.partition,
                fetch_offset=self._start(key, wanted),
                partition_max_bytes=min(max(max_bytes, 0), self._settings.buffer_bytes),
            )
            topics[-1].partitions.append(entry)
        return topics

    # To the client

    def _convert_all(
        self, network: str, response: FetchResponse, wanted: _Asked, magic: int
    ) -> list[FetchedPartition]:
        """Convert each partition's first batch, and hold only one of them converted."""
        converted: list[FetchedPartition] = []
        is_held = False
        for fetched in response.partitions:
            each = self._convert(network, fetched, wanted, magic)
            converted.append(each)
            records = _conversion(each)
            if records is not None and len(records):
                if is_held:
                    records.release()
                is_held = True
        return converted

    def _convert(
        self, network: str, fetched: FetchedPartition, wanted: _Asked, magic: int
    ) -> FetchedPartition:
        key = TopicPartition(fetched.topic, fetched.partition)
        if fetched.error_code != ErrorCode.NONE:
            return self._failed(key, fetched)
        try:
            records = begin(
                network,
                fetched.record_set,
                magic=magic,
                fetch_offset=self._start(key, wanted),
                chunk_bytes=self._settings.chunk_bytes,
                aborted=fetched.aborted_transactions,
                limit_bytes=self._settings.largest_batch_bytes,
            )
        except NotConvertible as error:
            self._warn(f"{key}: {error}. Old clients cannot read further")
            return replace(fetched, error_code=int(error.code), record_set=_NOTHING)
        # The encoder uses the length only, and passes the object on.
        return replace(fetched, record_set=cast(memoryview, records))

    def _failed(self, key: TopicPartition, fetched: FetchedPartition) -> FetchedPartition:
        code = old_code(fetched.error_code)
        if self._passed.pop(key, None) and code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log no longer begins where the skipped offsets end: the client fetches its own offset again.
            code = ErrorCode.NONE
        return replace(fetched, error_code=code, record_set=_NOTHING)

    # State between fetches

    def _start(self, key: TopicPartition, wanted: _Asked) -> int:
        passed = self._passed.get(key)
        offset = wanted[key].offset if key in wanted else -1
        return passed.end if passed and passed.start <= offset < passed.end else offset

    def _pass_over(self, each: FetchedPartition, wanted: _Asked) -> bool:
        """Remember the end of offsets without records; return whether it is a new one."""
        key, records = TopicPartition(each.topic, each.partition), _conversion(each)
        if records is None or len(records) or key not in wanted:
            return False
        if records.next_offset <= self._start(key, wanted):
            return False
        self._passed[key] = _Passed(wanted[key].offset, records.next_offset)
        return True

    def _forget_others(self, wanted: Iterable[TopicPartition]) -> None:
        """Forget partitions that the client no longer fetches."""
        asked = set(wanted)
        self._passed = {key: passed for key, passed in self._passed.items() if key in asked}
        self._turns = {key: None for key in self._turns if key in asked}

    def _in_turn(self, wanted: _Asked) -> _Asked:
        """Return the partitions in the order of their turns: the one served longest ago is first."""
        for key in wanted:
            self._turns.setdefault(key)
        return {key: wanted[key] for key in self._turns}

    def _end_turns(self, response: FetchResponse) -> None:
        """Put the partitions last that had batches in the buffer, also if the client receives no record."""
        for each in response.partitions:
            key = TopicPartition(each.topic, each.partition)
            if len(each.record_set) and key in self._turns:
                del self._turns[key]
                self._turns[key] = None


def _conversion(each: FetchedPartition) -> DownConversion | None:
    """Return the conversion in the place of a record set; None for an error."""
    found: object = each.record_set
    return found if isinstance(found, DownConversion) else None
