"""
Fetch v0 to v3: one buffer of v2 batches from the broker, old messages to the client, chunk by chunk.

An answer begins with its length, and what stands between two record sets in it too: so all of them have
to be there, as the broker sent them, before the first byte of an answer can be written. That is the
buffer, and so no more is asked for than it holds, whatever the client wants: it gets less at a time, and
asks again. Partitions take turns, since clients of before v3 ask for them in the same order for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from ...error_codes import ErrorCode
from ...errors import NotConvertible
from ...net.converting import begin
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...protocol.fetch import (
    LIMITED_FROM,
    MAGIC_1_FROM,
    MAGIC_2_FROM,
    FetchedPartition,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_response,
)
from ...records.down_conversion import DownConversion
from ...topic_partition import TopicPartition
from ..settings import GatewaySettings
from .request import Part, TranslatedRequest, old_code

__all__ = ["FetchTranslation"]

#: What an answer has besides record sets, for each partition that is asked for and in all.
_OVERHEAD_BYTES = 1024 * 1024

_NOTHING = memoryview(b"")

_Request = codec.request_class(ApiKey.FETCH)
_Topic = _Request.FetchTopic
_Partition = _Topic.FetchPartition


class _Wanted(NamedTuple):
    offset: int
    max_bytes: int


#: In the client's order.
_Asked = dict[TopicPartition, _Wanted]


class _Passed(NamedTuple):
    """What has nothing for an old client: it asks from ``start`` on, and is to be served from ``end`` on."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Converted:
    """A partition's part of an answer, and its record set as it will be sent."""

    fetched: FetchedPartition
    records: DownConversion | None

    @property
    def size(self) -> int:
        return len(self.records) if self.records is not None else 0


class FetchTranslation:
    """
    The fetches of one client connection.

    Between two of them it knows who was served last, and which places a client asks for again and again
    because nothing there can be shown to it: transaction markers, and records that were aborted.

    """

    def __init__(self, settings: GatewaySettings, tell: Callable[[str], object]) -> None:
        """
        Begin a connection's fetches.

        Args:
            settings: The gateway's.
            tell: Takes a sentence for whoever runs it.

        """
        self._settings = settings
        self._tell = tell
        self._turns: dict[TopicPartition, None] = {}
        self._passed: dict[TopicPartition, _Passed] = {}

    def translate(self, asking: TranslatedRequest) -> Sequence[Part]:
        """Fetch, and return the answer; its record sets are converted while they are sent."""
        request = asking.request
        version = asking.header.api_version
        wanted = {
            TopicPartition(topic.topic, each.partition): _Wanted(each.fetch_offset, each.partition_max_bytes)
            for topic in request.topics
            for each in topic.partitions
        }
        self._forget_others(wanted)
        converted = self._fetch(asking, request, wanted)
        response = FetchResponse(0, 0, 0, [self._encodable(each) for each in converted])
        parts = encode_fetch_response(response, version, asking.header.correlation_id)
        return cast(Sequence[Part], parts)

    def _encodable(self, each: _Converted) -> FetchedPartition:
        # The codec takes its length and hands it on.
        records = each.records if each.records is not None else _NOTHING
        return replace(each.fetched, record_set=cast(memoryview, records))

    # From the broker

    def _fetch(self, asking: TranslatedRequest, request: Any, wanted: _Asked) -> list[_Converted]:
        """Fetch until there is something to show, an error, or the client has waited long enough."""
        deadline = time.monotonic() + max(request.max_wait_ms, 0) / 1000
        version = asking.header.api_version
        magic = 1 if version >= MAGIC_1_FROM else 0
        while True:
            left_ms = int(max(deadline - time.monotonic(), 0) * 1000)
            ordered = wanted if version >= LIMITED_FROM else self._in_turn(wanted)
            response = self._fetch_once(asking, request, ordered, left_ms)
            self._end_turns(response)
            converted = self._convert_all(response, wanted, magic)
            moved = [self._pass_over(each, wanted) for each in converted]
            if not any(moved) or any(each.size or each.fetched.error_code for each in converted):
                return converted
            if time.monotonic() >= deadline:
                return converted
            del response, converted  # or their buffer would be held beside the next one

    def _fetch_once(
        self, asking: TranslatedRequest, request: Any, wanted: _Asked, max_wait_ms: int
    ) -> FetchResponse:
        buffer_bytes = self._settings.buffer_bytes
        version = asking.upstream.oldest(ApiKey.FETCH, MAGIC_2_FROM)
        max_bytes = request.max_bytes if asking.header.api_version >= LIMITED_FROM else buffer_bytes
        asking.upstream.send(
            asking.header,
            ApiKey.FETCH,
            version,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min(max(request.min_bytes, 0), buffer_bytes),
            max_bytes=min(max(max_bytes, 0), buffer_bytes),
            isolation_level=asking.isolation_level.value,
            topics=self._topics(wanted),
        )
        frame = asking.upstream.receive(
            max(buffer_bytes, self._settings.largest_batch_bytes) + _OVERHEAD_BYTES
        )
        return decode_fetch_response(frame, version)

    def _topics(self, wanted: _Asked) -> list[Any]:
        """List what is wanted in order; a topic comes again where another's partition stands between."""
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

    def _convert_all(self, response: FetchResponse, wanted: _Asked, magic: int) -> list[_Converted]:
        """Convert each partition's first batch; one is held, not one of each."""
        converted: list[_Converted] = []
        is_held = False
        for fetched in response.partitions:
            each = self._convert(fetched, wanted, magic)
            converted.append(each)
            if each.records is not None and each.size:
                if is_held:
                    each.records.release()
                is_held = True
        return converted

    def _convert(self, fetched: FetchedPartition, wanted: _Asked, magic: int) -> _Converted:
        key = TopicPartition(fetched.topic, fetched.partition)
        if fetched.error_code != ErrorCode.NONE:
            return _Converted(self._failed(key, fetched), None)
        try:
            records = begin(
                [fetched.record_set],
                magic=magic,
                fetch_offset=self._start(key, wanted),
                source_bytes=len(fetched.record_set),
                chunk_bytes=self._settings.chunk_bytes,
                aborted=fetched.aborted_transactions,
                limit_bytes=self._settings.largest_batch_bytes,
            )
        except NotConvertible as error:
            self._tell(f"{key}: {error}; old clients stop there")
            refused = replace(fetched, error_code=int(error.code), record_set=_NOTHING)
            return _Converted(refused, None)
        return _Converted(replace(fetched, record_set=_NOTHING), records)

    def _failed(self, key: TopicPartition, fetched: FetchedPartition) -> FetchedPartition:
        code = old_code(fetched.error_code)
        if self._passed.pop(key, None) and code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # What was passed over for the client is not where it is: it shall ask once more, from there.
            code = ErrorCode.NONE
        return replace(fetched, error_code=code, record_set=_NOTHING)

    # What is known from fetch to fetch

    def _start(self, key: TopicPartition, wanted: _Asked) -> int:
        passed = self._passed.get(key)
        offset = wanted[key].offset if key in wanted else -1
        return passed.end if passed and passed.start <= offset < passed.end else offset

    def _pass_over(self, each: _Converted, wanted: _Asked) -> bool:
        """Remember how far there was nothing to show; tell whether that is farther than before."""
        key = TopicPartition(each.fetched.topic, each.fetched.partition)
        if each.records is None or each.size or key not in wanted:
            return False
        start = self._start(key, wanted)
        if each.records.next_offset <= start:
            return False
        self._passed[key] = _Passed(wanted[key].offset, each.records.next_offset)
        return True

    def _forget_others(self, wanted: Iterable[TopicPartition]) -> None:
        """Keep nothing of what the client does not ask for any more."""
        asked = set(wanted)
        self._passed = {key: passed for key, passed in self._passed.items() if key in asked}
        self._turns = {key: None for key in self._turns if key in asked}

    def _in_turn(self, wanted: _Asked) -> _Asked:
        """Return what is wanted, who had nothing for the longest time first."""
        for key in wanted:
            self._turns.setdefault(key)
        return {key: wanted[key] for key in self._turns}

    def _end_turns(self, response: FetchResponse) -> None:
        """Put last who had room in the buffer, also where nothing of it can be shown."""
        for each in response.partitions:
            key = TopicPartition(each.topic, each.partition)
            if len(each.record_set) and key in self._turns:
                del self._turns[key]
                self._turns[key] = None
