"""
The one list of good and bad Produce requests, with the partition's log after each.

Every rule by which Kafka 4.1 takes or refuses a record set has its case here.
The list is run unchanged against each server (``test_produce_cases``); the real
one's answers are expected. The
cases with ``multi_batch`` need a broker that takes several batches of a partition in one request:
the embedded one with its option, or a real one with shoal's Java agent. A stock broker
answers each of their requests of several batches with INVALID_RECORD, and
writes nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import lz4.frame

from shoal.error_codes import ErrorCode
from shoal.records import Codec
from tests.conformance.playing import EVERY, ProduceCase, Request, Stored
from tests.world.batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TIMESTAMP,
    TRANSACTIONAL,
    Record,
    batch,
    compressed,
    message,
    patched,
    payload,
    raw_batch,
)

__all__ = ["CASES", "MULTI_BATCH_CASES", "MULTI_BATCH_CLIENT"]

#: A client that a broker with the option, or the agent, takes several batches from.
MULTI_BATCH_CLIENT = "shoal-multi-batch-test"

_LARGEST_SEQUENCE = 2**31 - 1
_HOUR_MS = 3_600_000
_PRODUCER_ID = 4_000_000_000
"""Of no producer that a broker of a test ever gives an id to."""

#: Of the versions in EVERY: those with zstd, and the newest.
WITH_ZSTD = (7, 8, 12)
NEWEST = (12,)

_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


# Building record sets


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _with_producer(sequence: int, records: int = 1, epoch: int = 0, **fields: Any) -> bytearray:
    values = [b"sequence %d" % (sequence + number) for number in range(records)]
    return batch(
        values,
        **{"producer_id": _PRODUCER_ID, "producer_epoch": epoch, "base_sequence": sequence, **fields},
    )


def _with_wrong_crc(original: bytearray) -> bytearray:
    return original[:-1] + bytes([original[-1] ^ 1])


def _with_length(length: int, size: int | None = None) -> bytearray:
    changed = batch()
    changed[8:12] = length.to_bytes(4, signed=True)
    return changed[:size]


def _with_magic(magic: int) -> bytearray:
    changed = batch()
    changed[16] = magic
    return changed


def _with_int32(position: int, value: int, codec: Codec = Codec.NONE, records: int = 2) -> bytearray:
    return patched(batch(records, codec=codec), position, value.to_bytes(4, signed=True))


_LAST_OFFSET_DELTA, _MAX_TIMESTAMP, _RECORDS_COUNT = 23, 35, 57


def _of(
    records: Sequence[Record], codec: Codec = Codec.NONE, counted: int | None = None, **fields: Any
) -> bytearray:
    """Build a batch of any records, whose header counts them, or says something else."""
    count = len(records) if counted is None else counted
    timestamps = [TIMESTAMP + record.timestamp_delta for record in records]
    return raw_batch(
        payload(records, codec),
        **{
            "attributes": codec,
            "last_offset_delta": count - 1,
            "records_count": count,
            "max_timestamp": max(timestamps, default=TIMESTAMP),
            **fields,
        },
    )


def _raw(plain: bytes, codec: Codec, count: int = 1) -> bytearray:
    """Build a batch whose payload is any bytes, compressed as they are."""
    return raw_batch(
        compressed(plain, codec), attributes=codec, last_offset_delta=count - 1, records_count=count
    )


def _ok(build: Callable[[], bytes | bytearray | None], **options: Any) -> Request:
    return Request(build, ErrorCode.NONE, **options)


def _no(build: Callable[[], bytes | bytearray | None], code: ErrorCode, **options: Any) -> Request:
    return Request(build, code, **options)


_INVALID = ErrorCode.INVALID_RECORD
_CORRUPT = ErrorCode.CORRUPT_MESSAGE
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
_TIME = ErrorCode.INVALID_TIMESTAMP
_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def _refused(name: str, build: Callable[[], Any], code: ErrorCode, **options: Any) -> ProduceCase:
    return ProduceCase(name, [_no(build, code)], **options)


def _accepted(
    name: str,
    build: Callable[[], Any],
    stored: Stored = Stored.AS_SENT,
    instead: Callable[[], bytearray] | None = None,
    **options: Any,
) -> ProduceCase:
    return ProduceCase(name, [_ok(build, stored=stored, instead=instead)], **options)


# Accepted unchanged


def _good() -> Iterator[ProduceCase]:
    for codec in Codec:
        versions = WITH_ZSTD if codec is Codec.ZSTD else EVERY
        yield ProduceCase(
            f"batches of codec {codec.name.lower()}",
            [_ok(partial(batch, 3, codec=codec)), _ok(partial(batch, 2, codec=codec))],
            versions=versions,
        )
    yield _accepted("acks 1 is answered", batch, versions=EVERY)
    yield ProduceCase("acks 1", [_ok(batch, acks=1)])
    yield _accepted("a leader epoch is overwritten", lambda: batch(leader_epoch=99))
    yield _accepted("unused attribute bits are kept", lambda: patched(batch(), 21, (0x7F80).to_bytes(2)))
    yield _accepted("a delete horizon is kept", lambda: batch(flags=DELETE_HORIZON))
    yield _accepted(
        "without a producer id, epoch and sequence are not looked at",
        lambda: batch(producer_id=-1, producer_epoch=12, base_sequence=12_345_678),
    )
    yield _accepted(
        "a negative producer id is none",
        lambda: batch(producer_id=-5_000_000_000, producer_epoch=3, base_sequence=-7),
    )
    yield _accepted(
        "a batch cut short at the end is dropped without a word",
        lambda: batch() + batch(5)[:-1],
        instead=batch,
    )
    yield _accepted(
        "eleven bytes at the end are dropped without a word", lambda: batch() + b"\1" * 11, instead=batch
    )
    yield _accepted(
        "an uncompressed batch whose header hides holes is stored corrupt",
        lambda: patched(batch(3, holes=[1]), _LAST_OFFSET_DELTA, (1).to_bytes(4)),
    )
    yield _accepted(
        "a null value and a null key", lambda: _of([Record(None, None), Record(None, b"", offset_delta=1)])
    )
    yield _accepted(
        "headers", lambda: _of([Record(headers=[("", None), ("a", b""), ("b" * 200, b"x" * 200)])])
    )
    for codec in (Codec.NONE, *_CODECS):
        yield _accepted(
            f"a record's unused attributes, {codec.name.lower()}",
            partial(_raw, b"".join((payload([Record()])[:1], b"\x7f", payload([Record()])[2:])), codec),
            versions=NEWEST,
        )


# Refused by ProduceRequest.validateRecords and the iterator below it


def _framing() -> Iterator[ProduceCase]:
    # No record set at all (null) is not here: Kafka has no answer to it, and the connection hangs.
    yield _refused("no batch at all", bytearray, _INVALID)
    yield _refused("eleven bytes", lambda: b"\0" * 11, _INVALID)
    yield _refused("half a batch", lambda: batch()[:40], _INVALID)
    yield _refused("two batches", lambda: batch() + batch(), _INVALID)
    yield _refused("two batches of codecs", lambda: batch(codec=Codec.LZ4) + batch(codec=Codec.LZ4), _INVALID)
    yield _refused("a batch, and one of magic 1", lambda: batch() + message(1), _INVALID)
    yield _refused("magic 0", lambda: message(0), _INVALID)
    yield _refused("magic 1", lambda: message(1), _INVALID)
    yield _refused("magic 3", lambda: _with_magic(3), _CORRUPT)
    yield _refused("magic -1", lambda: _with_magic(255), _CORRUPT)
    yield _refused("a length shorter than any record", lambda: _with_length(13), _CORRUPT)
    yield _refused("a length of 0", lambda: _with_length(0), _CORRUPT)
    yield _refused("a negative length", lambda: _with_length(-1), _CORRUPT)
    yield _refused("a length beyond the record set", lambda: _with_length(1 << 20), _INVALID)
    yield _refused("a length shorter than a header", lambda: _with_length(30, 42), _UNKNOWN)
    yield _refused(
        "a batch, and a length shorter than any record", lambda: batch() + _with_length(3), _CORRUPT
    )
    for version in (3, 4, 5, 6):
        yield _refused(
            f"zstd in Produce v{version}",
            lambda: batch(codec=Codec.ZSTD),
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            versions=(version,),
        )
    yield _refused(
        "zstd before v7 and a second batch",
        lambda: batch(codec=Codec.ZSTD) + batch(),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        versions=(6,),
    )


# Refused by UnifiedLog.analyzeAndValidateRecords


def _envelope() -> Iterator[ProduceCase]:
    yield _refused("a base offset", lambda: batch(base_offset=1), _INVALID)
    yield _refused("a negative base offset", lambda: batch(base_offset=-1), _INVALID)
    yield _refused("a base offset and a wrong CRC", lambda: _with_wrong_crc(batch(base_offset=1)), _INVALID)
    for codec in Codec:
        yield _refused(
            f"a wrong CRC, {codec.name.lower()}",
            partial(_with_wrong_crc, batch(3, codec=codec)),
            _CORRUPT,
            versions=WITH_ZSTD,
        )
    yield _refused("a wrong CRC and a control batch", lambda: _with_wrong_crc(batch(flags=CONTROL)), _CORRUPT)
    for codec_id in (5, 6, 7):
        yield _refused(
            f"codec {codec_id}",
            partial(patched, batch(), 21, codec_id.to_bytes(2)),
            _UNKNOWN,
        )
    overhead = len(batch([b""])) + 1
    small = {"max_message_bytes": "500"}
    yield _accepted(
        "as many bytes as max.message.bytes", lambda: batch([b"x" * (499 - overhead)]), config=small
    )
    yield _refused(
        "a byte more than max.message.bytes",
        lambda: batch([b"x" * (500 - overhead + 1)]),
        ErrorCode.MESSAGE_TOO_LARGE,
        config=small,
    )
    yield _refused(
        "too many bytes and a wrong CRC",
        lambda: _with_wrong_crc(batch([b"x" * 600])),
        ErrorCode.MESSAGE_TOO_LARGE,
        config=small,
    )
    yield _refused(
        "too many bytes by default",
        lambda: batch([b"x" * 1_048_588]),
        ErrorCode.MESSAGE_TOO_LARGE,
        versions=NEWEST,
    )
    yield _refused(
        "more bytes than segment.bytes",
        lambda: batch([b"x" * (1 << 20)]),
        ErrorCode.RECORD_LIST_TOO_LARGE,
        config={"segment_bytes": str(1 << 20), "max_message_bytes": str(10 << 20)},
        versions=NEWEST,
    )


# Refused by LogValidator.validateBatch


def _counts() -> Iterator[ProduceCase]:
    for codec in (Codec.NONE, Codec.LZ4):
        kind = codec.name.lower()
        yield _refused(f"holes, {kind}", partial(batch, 3, holes=[1], codec=codec), _INVALID)
        yield _refused(f"no records, {kind}", partial(batch, 3, holes=[0, 1, 2], codec=codec), _INVALID)
        yield _refused(
            f"more records than offsets, {kind}",
            partial(_with_int32, _RECORDS_COUNT, 3, codec),
            _INVALID,
        )
        yield _refused(
            f"a negative record count, {kind}",
            partial(_with_int32, _RECORDS_COUNT, -1, codec),
            _INVALID,
        )
        for delta in (-1, -2):
            yield _refused(
                f"a last offset delta of {delta}, {kind}",
                partial(_with_int32, _LAST_OFFSET_DELTA, delta, codec),
                _INVALID,
            )
        yield _refused(
            f"the largest last offset delta, {kind}",
            partial(_with_int32, _LAST_OFFSET_DELTA, 2**31 - 1, codec),
            _INVALID,
        )
        yield _refused(f"a control batch, {kind}", partial(batch, flags=CONTROL, codec=codec), _INVALID)
        yield _refused(
            f"a producer id without a sequence, {kind}",
            partial(_with_producer, -1, codec=codec),
            _INVALID,
        )


# Refused while the records are read


def _records() -> Iterator[ProduceCase]:
    for codec in Codec:
        kind = codec.name.lower()
        two = [Record(), Record(offset_delta=1)]
        yield _refused(
            f"fewer records than the header says, {kind}",
            partial(_of, [Record()], codec, 2),
            _INVALID,
            versions=NEWEST,
        )
        yield _refused(
            f"more records than the header says, {kind}",
            partial(_of, two, codec, 1),
            _INVALID,
            versions=NEWEST,
        )
        yield _refused(
            f"a byte after the last record, {kind}",
            partial(_raw, payload([Record()]) + b"\0", codec),
            _INVALID,
            versions=NEWEST,
        )
        # Kafka does not look at the length of a record whose key and value it skips.
        skips = codec is not Codec.NONE
        for name, plain, is_refused in (
            ("a record longer than the batch", b"\x7e" + payload([Record()])[1:], not skips),
            ("a record shorter than its fields", b"\x10" + payload([Record()])[1:], not skips),
            ("a record of negative length", b"\x01" + payload([Record()])[1:], not skips),
            ("a record longer than its fields", _lengthened(payload([Record()])), True),
            ("a record of length 0", b"\0", True),
        ):
            build = lambda plain=plain, codec=codec: _raw(plain, codec)  # noqa: E731
            if is_refused:
                yield _refused(f"{name}, {kind}", build, _INVALID, versions=NEWEST)
            else:
                yield _accepted(f"{name}, {kind}", build, versions=NEWEST)
                yield _refused(
                    f"{name}, {kind}, where it is recompressed",
                    build,
                    _INVALID,
                    config={"compression_type": "uncompressed"},
                    versions=NEWEST,
                )
        for name, plain, code in (
            ("a length without end", b"\xff" * 12, _INVALID if skips else _UNKNOWN),
            ("a timestamp delta without end", b"\x20\0" + b"\xff" * 15, _INVALID),
            ("a key length without end", b"\x20\0\0\0" + b"\xff" * 13, _INVALID),
            ("no records in the payload", b"", _INVALID),
        ):
            yield _refused(f"{name}, {kind}", partial(_raw, plain, codec), code, versions=NEWEST)
        for name, body in (
            ("a negative header count", b"\0\0\0\x01\x01\x01"),
            ("a header without a name", b"\0\0\0\x01\x01\x02\x01\x01"),
            ("a header count beyond the record", b"\0\0\0\x01\x01\x7e"),
            ("a key longer than the record", b"\0\0\0\x7e\x01\0"),
        ):
            yield _refused(
                f"{name}, {kind}",
                partial(_raw, bytes([2 * len(body)]) + body, codec),
                _INVALID,
                versions=NEWEST,
            )
    for codec in _CODECS:
        kind = codec.name.lower()
        yield _refused(
            f"a payload that is not {kind}",
            partial(raw_batch, b"garbage" * 5, attributes=codec),
            _UNKNOWN,
            versions=NEWEST,
        )
        yield _refused(
            f"a payload of no bytes for {kind}",
            partial(raw_batch, b"", attributes=codec),
            _INVALID if codec is Codec.ZSTD else _UNKNOWN,
            versions=NEWEST,
        )
        yield _refused(
            f"a payload that is half of its {kind}",
            partial(_halved, codec),
            _UNKNOWN,
            versions=NEWEST,
        )
        behind = Request(
            partial(raw_batch, payload([Record()], codec) + b"\0\0\0\0", attributes=codec),
            ErrorCode.NONE if codec in (Codec.GZIP, Codec.LZ4) else _UNKNOWN,
        )
        yield ProduceCase(f"bytes after the end of the {kind} stream", [behind], versions=NEWEST)
        yield _refused(
            f"a header that hides holes, {kind}",
            partial(patched, batch(3, holes=[1], codec=codec), _LAST_OFFSET_DELTA, (1).to_bytes(4)),
            _UNKNOWN,
            versions=NEWEST,
        )
        yield _refused(
            f"offset deltas that begin at 1, {kind}",
            partial(_of, [Record(offset_delta=1)], codec),
            _UNKNOWN,
            versions=NEWEST,
        )


def _lz4_frames() -> Iterator[ProduceCase]:
    """The LZ4 frames that Kafka's own reader accepts, fewer than the format allows."""
    options: dict[str, Any] = {"versions": NEWEST}
    plain = payload([Record(b"value" * 40_000)])
    for flag in ("block_checksum", "store_size"):
        yield ProduceCase(
            f"an LZ4 frame with {flag.replace('_', ' ')}",
            [_ok(partial(_lz4, plain, **{flag: True}))],
            **options,
        )
    yield _refused(
        "an LZ4 frame of linked blocks", lambda: _lz4(plain, block_linked=True), _UNKNOWN, **options
    )
    damaged = _lz4(plain, damaged=40, block_checksum=True)
    yield _refused("a block of LZ4 with a wrong checksum", lambda: damaged, _UNKNOWN, **options)
    # Records are checked while they are decompressed: the first error counts.
    broken = b"\x0c\0\0\0\1\1\1" + bytes(1 << 20)
    yield _refused(
        "a malformed record long before the stream of gzip is cut short",
        lambda: raw_batch(compressed(broken, Codec.GZIP)[:-50], attributes=Codec.GZIP),
        _INVALID,
        **options,
    )


def _lz4(plain: bytes, *, damaged: int | None = None, **flags: bool) -> bytearray:
    frame = bytearray(lz4.frame.compress(plain, **{"store_size": False, "block_linked": False, **flags}))
    if damaged is not None:
        frame[damaged] ^= 1
    return raw_batch(bytes(frame), attributes=Codec.LZ4)


def _lengthened(encoded: bytes) -> bytes:
    return bytes([encoded[0] + 2]) + encoded[1:] + b"\0"


def _halved(codec: Codec) -> bytearray:
    compressed = payload(
        [Record(b"value %d" % number * 9, offset_delta=number) for number in range(99)], codec
    )
    return raw_batch(
        compressed[: len(compressed) // 2], attributes=codec, last_offset_delta=98, records_count=99
    )


# Timestamps


def _timestamps() -> Iterator[ProduceCase]:
    after, before = (
        {"message_timestamp_after_max_ms": "1000"},
        {"message_timestamp_before_max_ms": str(_HOUR_MS)},
    )
    stamped = {"message_timestamp_type": "LogAppendTime"}
    for codec in (Codec.NONE, Codec.LZ4):
        kind = codec.name.lower()
        yield _refused(
            f"two hours ahead, {kind}",
            partial(_from_now, 2 * _HOUR_MS, codec),
            _TIME,
        )
        yield _accepted(
            f"half an hour ahead, {kind}",
            partial(_from_now, _HOUR_MS // 2, codec),
        )
        yield _refused(
            f"further ahead than the topic allows, {kind}",
            partial(_from_now, 60_000, codec),
            _TIME,
            config=after,
        )
        yield _refused(
            f"older than the topic allows, {kind}",
            partial(_from_now, -2 * _HOUR_MS, codec),
            _TIME,
            config=before,
        )
        yield _accepted(
            f"ten years old, {kind}", partial(batch, base_timestamp=1_450_000_000_000, codec=codec)
        )
        yield _accepted(
            f"no timestamps, whatever the range, {kind}",
            partial(batch, base_timestamp=-1, codec=codec),
            config=before,
        )
        yield _refused(
            f"one record of three is two hours ahead, {kind}",
            partial(_ahead, codec, max_timestamp=TIMESTAMP),
            _TIME,
        )
        yield _accepted(
            f"a wrong max timestamp is put right, {kind}",
            partial(patched, batch(3, codec=codec), _MAX_TIMESTAMP, (TIMESTAMP + 99).to_bytes(8)),
            instead=partial(batch, 3, codec=codec),
        )
        yield _accepted(
            f"a max timestamp two hours ahead is put right, {kind}",
            partial(_with_max_ahead, codec),
            instead=partial(batch, 3, codec=codec),
        )
        yield _accepted(
            f"unused attribute bits go with a wrong max timestamp, {kind}",
            partial(
                patched,
                patched(batch(3, codec=codec), 21, (0x7F00 | codec).to_bytes(2)),
                _MAX_TIMESTAMP,
                (TIMESTAMP + 99).to_bytes(8),
            ),
            instead=partial(batch, 3, codec=codec),
        )
        yield _accepted(
            f"the LogAppendTime bit is cleared, {kind}",
            partial(batch, 3, flags=LOG_APPEND_TIME, codec=codec),
            instead=partial(batch, 3, codec=codec),
        )
        yield _accepted(
            f"a LogAppendTime topic stamps the batch, {kind}",
            partial(batch, 3, codec=codec),
            Stored.APPEND_TIMED,
            config=stamped,
        )
        yield _accepted(
            f"a LogAppendTime topic takes any time, {kind}",
            partial(_from_now, 9 * _HOUR_MS, codec, 3),
            Stored.APPEND_TIMED,
            config=stamped,
        )
        yield _refused(
            f"the LogAppendTime bit in a LogAppendTime topic, {kind}",
            partial(batch, flags=LOG_APPEND_TIME, codec=codec),
            _TIME,
            config=stamped,
        )
        yield _refused(
            f"the LogAppendTime bit without a timestamp, {kind}",
            partial(batch, flags=LOG_APPEND_TIME, base_timestamp=-1, codec=codec),
            _TIME,
        )


def _from_now(ms: int, codec: Codec, records: int = 1) -> bytearray:
    return batch(records, base_timestamp=_now_ms() + ms, codec=codec)


def _with_max_ahead(codec: Codec) -> bytearray:
    return patched(batch(3, codec=codec), _MAX_TIMESTAMP, (_now_ms() + 2 * _HOUR_MS).to_bytes(8))


def _ahead(codec: Codec, **fields: Any) -> bytearray:
    delta = _now_ms() + 2 * _HOUR_MS - TIMESTAMP
    records = [Record(offset_delta=number, timestamp_delta=delta * (number == 1)) for number in range(3)]
    return _of(records, codec, **fields)


# Compacted topics


def _keys() -> Iterator[ProduceCase]:
    compacted = {"cleanup_policy": "compact"}
    keyless = [Record(), Record(key=None, offset_delta=1)]
    for codec in Codec:
        kind = codec.name.lower()
        yield _refused(
            f"a record without a key in a compacted topic, {kind}",
            partial(_of, keyless, codec),
            _INVALID,
            config=compacted,
            versions=WITH_ZSTD,
        )
        yield _accepted(
            f"an empty key and a tombstone in a compacted topic, {kind}",
            partial(_of, [Record(key=b""), Record(value=None, offset_delta=1)], codec),
            config=compacted,
            versions=NEWEST,
        )
        yield _refused(
            f"one record without a key, another two hours ahead, {kind}",
            partial(_keyless_and_ahead, codec),
            _TIME,
            config=compacted,
            versions=NEWEST,
        )


def _keyless_and_ahead(codec: Codec) -> bytearray:
    delta = _now_ms() + 2 * _HOUR_MS - TIMESTAMP
    return _of([Record(key=None), Record(offset_delta=1, timestamp_delta=delta)], codec)


# Topics with a codec of their own


def _codecs() -> Iterator[ProduceCase]:
    for source, target in itertools.product(Codec, ("uncompressed", "gzip", "snappy", "lz4", "zstd")):
        is_same = target in (source.name.lower(), {Codec.NONE: "uncompressed"}.get(source))
        yield ProduceCase(
            f"{source.name.lower()} into a topic of {target}",
            [
                _ok(
                    partial(batch, [b"value" * 20] * 3, codec=source, base_timestamp=TIMESTAMP + start),
                    stored=Stored.AS_SENT if is_same else Stored.RECOMPRESSED,
                )
                for start in (0, 1)
            ],
            config={"compression_type": target},
            versions=NEWEST,
        )
    gzip = {"compression_type": "gzip"}
    yield _accepted(
        "recompression keeps the producer",
        lambda: _with_producer(7, 3, epoch=2),
        Stored.RECOMPRESSED,
        config=gzip,
        versions=NEWEST,
    )
    yield _refused(
        "what recompression makes too large",
        lambda: batch([b"x" * 5000], codec=Codec.LZ4),
        ErrorCode.MESSAGE_TOO_LARGE,
        config={"compression_type": "uncompressed", "max_message_bytes": "1000"},
        versions=NEWEST,
    )
    yield _refused(
        "a negative sequence without a producer id cannot be recompressed",
        lambda: batch(producer_id=-5, producer_epoch=3, base_sequence=-7),
        _UNKNOWN,
        config=gzip,
        versions=NEWEST,
    )
    yield _accepted(
        "offset deltas that begin at 1 are put right by recompression",
        lambda: _of([Record(offset_delta=3)], Codec.LZ4, last_offset_delta=0),
        Stored.RECOMPRESSED,
        lambda: _of([Record()]),
        config=gzip,
        versions=NEWEST,
    )


# Idempotent producers


def _sequences() -> Iterator[ProduceCase]:
    def sent(sequence: int, records: int = 1, epoch: int = 0, **options: Any) -> Request:
        return Request(lambda: _with_producer(sequence, records, epoch), **options)

    def case(name: str, *requests: Request) -> ProduceCase:
        return ProduceCase(name, requests, versions=(3, 12))

    again = Stored.NOTHING
    yield case("sequences go on where the last batch ended", sent(0, 3), sent(3, 2), sent(5))
    for gap in (4, 1, 2, _LARGEST_SEQUENCE):
        yield case(f"sequence {gap} after 2", sent(0, 3), sent(gap, code=_ORDER), sent(3))
    yield case("a producer that is not known may begin anywhere", sent(1000), sent(1001))
    yield case("after the largest sequence comes 0", sent(_LARGEST_SEQUENCE - 1, 2), sent(0))
    yield case(
        "a batch may run over the largest sequence",
        sent(_LARGEST_SEQUENCE, 3),
        sent(_LARGEST_SEQUENCE, 3, base_offset=0, stored=again),
        sent(2),
    )
    yield case(
        "a repeat of one of the last five is answered with its offset, one before is refused",
        *(sent(2 * number, 2) for number in range(7)),
        *(sent(2 * number, 2, base_offset=2 * number, stored=again) for number in range(2, 7)),
        sent(2, 2, code=_ORDER),
    )
    yield case(
        "a repeat of another size is no repeat", sent(0, 2), sent(0, 1, code=_ORDER), sent(0, 3, code=_ORDER)
    )
    yield case("an older epoch", sent(0, epoch=3), sent(1, epoch=2, code=_EPOCH))
    yield case(
        "a newer epoch begins at 0",
        sent(7, epoch=3),
        sent(8, epoch=4, code=_ORDER),
        sent(0, epoch=4),
        sent(8, epoch=3, code=_EPOCH),
    )
    yield case(
        "a repeat of an older epoch is fenced",
        sent(0, epoch=3),
        sent(0, epoch=4),
        sent(0, epoch=3, code=_EPOCH),
    )
    yield case("an epoch of -1", sent(0, epoch=-1), sent(1, epoch=-1))
    yield case(
        "sequences are held against the producer and not against the log",
        sent(0),
        _ok(lambda: batch(10)),
        sent(1),
        Request(lambda: _with_producer(500, producer_id=_PRODUCER_ID + 1)),
        sent(2),
    )
    yield case(
        "what the records break is found before the sequence",
        sent(0),
        _no(lambda: patched(_with_producer(9, 2), _RECORDS_COUNT, (1).to_bytes(4)), _INVALID),
    )
    yield ProduceCase(
        "a repeat is known to a LogAppendTime topic",
        [sent(0, stored=Stored.APPEND_TIMED), sent(0, base_offset=0, stored=again)],
        config={"message_timestamp_type": "LogAppendTime"},
        versions=NEWEST,
    )
    yield ProduceCase(
        "a repeat is known to a topic that recompresses",
        [sent(0, stored=Stored.RECOMPRESSED), sent(0, base_offset=0, stored=again)],
        config={"compression_type": "gzip"},
        versions=NEWEST,
    )


# Transactions


def _transactions() -> Iterator[ProduceCase]:
    def transactional(**fields: Any) -> bytearray:
        return _with_producer(0, **{"flags": TRANSACTIONAL, **fields})

    yield _refused(
        "a transactional batch without a transactional id",
        transactional,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    yield _refused(
        "a transactional control batch without a transactional id",
        lambda: transactional(flags=TRANSACTIONAL | CONTROL),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    yield ProduceCase(
        "a transactional id that nobody has",
        [_no(transactional, ErrorCode.INVALID_PRODUCER_ID_MAPPING, transactional_id="nobody's")],
    )
    yield ProduceCase(
        "a plain batch with a transactional id", [_ok(batch, transactional_id="nobody's")], versions=NEWEST
    )


# Requests as a whole


def _requests() -> Iterator[ProduceCase]:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (-1, 1):
        yield ProduceCase(f"partition {partition} of one", [_no(batch, unknown, partition=partition)])
    yield ProduceCase(
        "two batches for a partition that is not there",
        [_no(lambda: batch() + batch(), unknown, partition=1)],
    )
    for acks in (2, -2):
        yield ProduceCase(f"acks {acks}", [_no(batch, ErrorCode.INVALID_REQUIRED_ACKS, acks=acks)])
    yield ProduceCase(
        "acks 2 and two batches", [_no(lambda: batch() + batch(), _INVALID, acks=2)], versions=NEWEST
    )


CASES: Sequence[ProduceCase] = [
    *_good(),
    *_framing(),
    *_envelope(),
    *_counts(),
    *_records(),
    *_lz4_frames(),
    *_timestamps(),
    *_keys(),
    *_codecs(),
    *_sequences(),
    *_transactions(),
    *_requests(),
]


# Several batches in a request


def _multi_batch() -> Iterator[ProduceCase]:
    def row(sequence: int, *counts: int, **fields: Any) -> bytes:
        starts = itertools.accumulate(counts, initial=sequence)
        return b"".join(
            _with_producer(start % 2**31, count, **fields)
            for start, count in zip(starts, counts, strict=False)
        )

    def sent(sequence: int, *counts: int, **options: Any) -> Request:
        return Request(lambda: row(sequence, *counts), is_marked=True, **options)

    def case(name: str, *requests: Request, **options: Any) -> ProduceCase:
        return ProduceCase(name, requests, **{"versions": (7, 12), **options})

    again = Stored.NOTHING
    for count in (2, 5, 6, 50):
        yield case(f"{count} batches", sent(0, *[2] * count), sent(2 * count, *[1] * count))
        yield case(
            f"{count} batches sent again",
            sent(0, *[2] * count),
            sent(0, *[2] * count, base_offset=0, stored=again),
            sent(2 * count, 1),
        )
        for written in {1, count - 1}:
            yield case(
                f"{count} batches of which {written} were written",
                sent(0, *[2] * written),
                sent(0, *[2] * count, base_offset=0),
            )
    for codec in Codec:
        yield case(
            f"several batches of {codec.name.lower()}",
            Request(partial(row, 0, 3, 2, 1, codec=codec), is_marked=True),
        )
    yield case(
        "a codec for each batch",
        Request(
            lambda: b"".join(_with_producer(number, codec=codec) for number, codec in enumerate(Codec)),
            is_marked=True,
        ),
    )
    yield case(
        "several batches that are recompressed",
        Request(lambda: row(0, 3, 2), is_marked=True, stored=Stored.RECOMPRESSED),
        Request(lambda: row(5, 3, 2, codec=Codec.GZIP), is_marked=True),
        config={"compression_type": "gzip"},
    )
    yield case(
        "several batches in a LogAppendTime topic",
        sent(0, 3, 2, stored=Stored.APPEND_TIMED),
        config={"message_timestamp_type": "LogAppendTime"},
    )
    yield case("one batch is held against the log's end too", sent(7, 1, code=_ORDER), sent(0, 1), sent(1, 1))
    yield case("the log does not end there", sent(0, 1, 1), sent(3, 1, 1, code=_ORDER), sent(2, 1, 1))
    yield case(
        "an unknown producer appends where the log ends and nowhere else",
        sent(0, 3, 4),
        Request(lambda: row(3, 1, 1, producer_id=_PRODUCER_ID + 1), _ORDER, is_marked=True),
        Request(lambda: row(7, 1, 1, producer_id=_PRODUCER_ID + 1), is_marked=True),
    )
    yield case(
        "after a foreign record a known producer is refused",
        sent(0, 1, 1),
        _ok(batch),
        sent(2, 1, 1, code=_ORDER),
        sent(3, 1, 1, code=_ORDER),
    )
    yield case("batches cut in another way are no repeat", sent(0, 2, 2), sent(0, 1, 3, code=_ORDER))
    yield case(
        "an older epoch", Request(lambda: row(0, 1, 1, epoch=3), is_marked=True), sent(2, 1, 1, code=_EPOCH)
    )
    yield case(
        "requests sent again long after",
        *(sent(6 * n, *[1] * 6) for n in range(5)),
        *(sent(6 * n, *[1] * 6, base_offset=6 * n, stored=again) for n in range(5)),
    )
    yield case(
        "a batch cut short at the end",
        Request(lambda: row(0, 1, 1)[:-1], _INVALID, is_marked=True),
        Request(lambda: row(0, 1)[:-1], _INVALID, is_marked=True),
    )
    yield case(
        "a repeated batch with a wrong CRC",
        sent(0, 1, 1),
        Request(lambda: row(0, 1) + _with_wrong_crc(_with_producer(1)), _CORRUPT, is_marked=True),
        sent(0, 1, 1, base_offset=0, stored=again),
    )
    for sequence, code in ((1, ErrorCode.INVALID_REQUIRED_ACKS), (9, _INVALID)):
        yield case(
            f"acks 2 with sequence {sequence} behind 0, both with a wrong CRC",
            Request(
                partial(_both_with_wrong_crc, sequence),
                code,
                acks=2,
                is_marked=True,
            ),
        )
    spoilt: Sequence[tuple[str, Callable[[bytearray], bytes | bytearray], ErrorCode]] = (
        ("magic 1", lambda last: last[:16] + b"\1" + last[17:], _INVALID),
        ("a base offset", lambda last: patched(last, 0, (2).to_bytes(8)), _INVALID),
        ("holes", lambda last: patched(last, _RECORDS_COUNT, (1).to_bytes(4)), _INVALID),
        ("another producer", lambda last: patched(last, 43, (9).to_bytes(8)), _INVALID),
        ("no producer", lambda last: patched(last, 43, (-1).to_bytes(8, signed=True)), _INVALID),
        ("another epoch", lambda last: patched(last, 51, (1).to_bytes(2)), _INVALID),
        ("a sequence too far", lambda last: patched(last, 53, (5).to_bytes(4)), _INVALID),
        ("a sequence once more", lambda last: patched(last, 53, (2).to_bytes(4)), _INVALID),
        ("a transaction", lambda last: patched(last, 21, TRANSACTIONAL.to_bytes(2)), _INVALID),
        ("a control batch", lambda last: patched(last, 21, CONTROL.to_bytes(2)), _INVALID),
        ("a wrong CRC", _with_wrong_crc, _CORRUPT),
        ("an unknown codec", lambda last: patched(last, 21, (5).to_bytes(2)), _UNKNOWN),
        ("a garbled payload", lambda last: patched(last, 21, Codec.LZ4.to_bytes(2)), _UNKNOWN),
        ("a time ahead", lambda last: patched(last, 27, (_now_ms() + 2 * _HOUR_MS).to_bytes(8)), _TIME),
    )
    for name, spoil, code in spoilt:
        yield case(
            f"{name} in the last of three",
            Request(partial(_with_the_last, spoil), code, is_marked=True),
            sent(0, 2, 2, 2),
        )
    yield case(
        "several batches without a producer",
        Request(lambda: batch() + batch(), _INVALID, is_marked=True),
        Request(batch, is_marked=True),
    )
    yield case("several batches before v7", sent(0, 1, 1, code=_INVALID), versions=(3, 6))
    yield case(
        "several batches of a client that does not ask for it",
        Request(lambda: row(0, 1, 1), _INVALID),
        Request(lambda: row(7, 1)),
    )


def _both_with_wrong_crc(sequence: int) -> bytearray:
    return _with_wrong_crc(_with_producer(0)) + _with_wrong_crc(_with_producer(sequence))


def _with_the_last(spoil: Callable[[bytearray], bytes | bytearray]) -> bytes:
    """Three batches of two records, the last of them spoilt."""
    return b"".join((_with_producer(0, 2), _with_producer(2, 2), spoil(_with_producer(4, 2))))


MULTI_BATCH_CASES: Sequence[ProduceCase] = list(_multi_batch())
