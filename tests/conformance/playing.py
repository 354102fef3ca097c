"""Plays a case of ``produce_cases``: sends its requests, and compares the answers and the log."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.error_codes import ErrorCode
from shoal.records import Codec, RecordBatch, read_records, split
from tests.broker.wire import Wire
from tests.world.batches import LOG_APPEND_TIME, TIMESTAMP, patched

__all__ = ["EVERY", "ProduceCase", "Request", "Stored", "check"]

#: The oldest version, the first with zstd, the first with record errors, the newest that has topic names.
EVERY = (3, 7, 8, 12)


class Stored(enum.Enum):
    """The part of an accepted record set that is in the log."""

    AS_SENT = "each batch byte for byte, but for base offset and leader epoch"
    APPEND_TIMED = "the payload byte for byte, under a header with the broker's time"
    RECOMPRESSED = "the records, compressed with the topic's codec"
    NOTHING = "nothing new: it was there already"


@dataclass(frozen=True)
class Request:
    """
    One Produce request for one partition, and its answer.

    Attributes:
        sent: Makes the record set, as late as it is sent: some bear the time.
        code: The error code of the response.
        stored: The new part of the log if the request is accepted.
        instead: A batch that the log has, as ``stored`` says, in place of the sent one.
        base_offset: The base offset of the response; None for the former log end, -1 if refused.

    """

    sent: Callable[[], bytes | bytearray | None]
    code: ErrorCode = ErrorCode.NONE
    stored: Stored = Stored.AS_SENT
    instead: Callable[[], bytearray] | None = None
    base_offset: int | None = None
    partition: int = 0
    acks: int = -1
    transactional_id: str | None = None
    is_marked: bool = False
    """Sent by a client that asks for several batches."""


@dataclass(frozen=True)
class ProduceCase:
    """
    Some requests to a new topic, one after the other.

    Attributes:
        name: Says which rule.
        requests: In order.
        config: The topic's, with ``_`` for ``.``.
        versions: Of Produce, for each of which it holds.

    """

    name: str
    requests: Sequence[Request]
    config: Mapping[str, str] = field(default_factory=dict)
    versions: Sequence[int] = EVERY

    def __str__(self) -> str:
        return self.name


def check(case: ProduceCase, version: int, wire: Wire, marked: Wire, topic: str) -> None:
    """
    Send a case's requests to a new topic that has its config, and compare answers and log.

    Args:
        case: The case.
        version: Of Produce, one of the case's.
        wire: A connection.
        marked: One whose client asks for several batches.
        topic: With one partition, and the case's config.

    """
    expected: list[_Expected] = []
    end_offset = 0
    if any(request.transactional_id for request in case.requests):
        # Has a real broker start its transaction coordinator.
        assert wire.init_producer_id("somebody's").error_code == ErrorCode.NONE
    for number, request in enumerate(case.requests, 1):
        sender = marked if request.is_marked else wire
        sent = request.sent()
        answer = sender.produce(
            topic,
            sent,
            partition=request.partition,
            version=version,
            acks=request.acks,
            transactional_id=request.transactional_id,
        )
        where = f"request {number} of {case.name!r}, v{version}"
        assert ErrorCode(answer.error_code) is request.code, where
        assert answer.base_offset == _base_offset(request, end_offset), where
        if request.code is ErrorCode.NONE and request.stored is not Stored.NOTHING:
            assert sent is not None
            skipped = end_offset - answer.base_offset
            for built in split(memoryview(request.instead() if request.instead else sent)):
                if skipped > 0:
                    skipped -= built.header.last_offset_delta + 1
                    continue
                expected.append(_Expected(end_offset, built, request.stored, answer.log_append_time_ms))
                end_offset += built.header.last_offset_delta + 1
    _compare(case, expected, list(_read(wire, topic, end_offset)))


@dataclass(frozen=True)
class _Expected:
    base_offset: int
    batch: RecordBatch
    stored: Stored
    append_time: int


def _base_offset(request: Request, end_offset: int) -> int:
    if request.code is not ErrorCode.NONE:
        return -1
    return end_offset if request.base_offset is None else request.base_offset


def _read(wire: Wire, topic: str, end_offset: int) -> Iterator[RecordBatch]:
    """Read the whole log, which must end at the given offset."""
    assert wire.end_offset(topic) == end_offset
    offset = 0
    while offset < end_offset:
        fetched = wire.fetch(topic, offset, partition_max_bytes=1 << 24, max_bytes=1 << 24)
        assert fetched.error_code == ErrorCode.NONE
        for found in split(memoryview(bytes(fetched.record_set))):
            yield found
            offset = found.header.next_offset


def _compare(case: ProduceCase, expected: Sequence[_Expected], found: Sequence[RecordBatch]) -> None:
    assert len(found) == len(expected)
    for wanted, stored in zip(expected, found, strict=True):
        assert stored.header.base_offset == wanted.base_offset
        if wanted.stored is Stored.APPEND_TIMED:
            assert stored.header.attributes == wanted.batch.header.attributes | LOG_APPEND_TIME
            assert _identity(stored)[:3] == _identity(wanted.batch)[:3]
            # Of several batches, the agent has each validated at a time of its own.
            tolerance_ms = 1000 if len(expected) > 1 else 0
            assert abs(stored.header.max_timestamp - wanted.append_time) <= tolerance_ms
            assert stored.header.max_timestamp > TIMESTAMP
            assert patched(bytes(stored.view), 0, b"") == stored.view, "its CRC is right"
            assert stored.payload == wanted.batch.payload
        elif wanted.stored is Stored.RECOMPRESSED:
            codec = case.config["compression_type"]
            assert stored.header.codec_id == (Codec.NONE if codec == "uncompressed" else Codec[codec.upper()])
            assert _content(stored) == _content(wanted.batch)
            assert stored.header.records_count == stored.header.last_offset_delta + 1
            assert _identity(stored) == _identity(wanted.batch)
            assert patched(bytes(stored.view), 0, b"") == stored.view, "its CRC is right"
        else:
            assert stored.view[8:12] == wanted.batch.view[8:12]
            assert stored.view[16:] == wanted.batch.view[16:]


def _content(batch: RecordBatch) -> list[tuple[int, bytes]]:
    return [(each.timestamp, each.body) for each in read_records(batch, 1 << 26)]


def _identity(batch: RecordBatch) -> tuple[int, int, int, int]:
    header = batch.header
    return header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp
