"""Down-conversion beside bytes that a real Kafka 3.9.1 sent to old clients, from the same record sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from shoal.errors import NotConvertible
from shoal.records import Codec, decompress, split
from shoal.records.down_conversion import DownConversion
from tests.each_case import each_case
from tests.vectors import Vector, down_converted_vectors, vector
from tests.world.batches import before_padding

CODECS = (None, "none", "gzip", "snappy", "lz4")
KAFKA_CHUNK_BYTES = 128 * 1024
MAGIC_OF_VERSION = {0: 0, 1: 0, 2: 1, 3: 1}
ERROR_UNSUPPORTED_COMPRESSION = 76

CONVERTED = [
    each
    for each in down_converted_vectors()
    if each.direction == "response" and each.version in MAGIC_OF_VERSION
]


def _name(recorded: Vector) -> str:
    """Without directory, version and direction."""
    return recorded.name.split("-", 2)[2].removesuffix(".response")


def _partition(recorded: Vector) -> Any:
    response = FetchResponse[recorded.version].decode(recorded.frame, header=True)
    (partition,) = response.responses[0].partitions
    return partition


def _record_set(recorded: Vector) -> bytes:
    return bytes(_partition(recorded).records)


def _fetch_offset(recorded: Vector) -> int:
    asked = vector(recorded.name.replace(".response", ".request"))
    request = FetchRequest[asked.version].decode(asked.frame, header=True)
    offset: int = request.topics[0].partitions[0].fetch_offset
    return offset


def _conversion(recorded: Vector, *, chunk_bytes: int = KAFKA_CHUNK_BYTES) -> DownConversion:
    source = _record_set(vector(f"down_converted/fetch-v12-{_name(recorded)}.response"))
    return DownConversion(
        memoryview(source),
        magic=MAGIC_OF_VERSION[recorded.version],
        fetch_offset=_fetch_offset(recorded),
        chunk_bytes=chunk_bytes,
    )


def _offsets(messages: bytes) -> list[int]:
    offsets = []
    while messages:
        offsets.append(int.from_bytes(messages[:8]))
        messages = messages[12 + int.from_bytes(messages[8:12]) :]
    return offsets


def _with_name(
    *names: str, codecs: Sequence[str | None] = CODECS
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    found = [each for each in CONVERTED if _name(each).startswith(names) and each.codec in codecs]
    return each_case("recorded", found, attrgetter("name"))


SUBJECTS = ("codec", "from-the-middle", "log-append-time", "compacted")


@_with_name(*SUBJECTS, "padding", "transactions", codecs=(None, "none", "lz4"))
def test_conversion_without_zlib_or_snappy_has_kafka_s_bytes(recorded: Vector) -> None:
    assert b"".join(_conversion(recorded).chunks()) == _record_set(recorded)


def _unwrapped(messages: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the offset, the fields from the magic up to the value, and the inner messages."""
    found = []
    for each in split(memoryview(messages)):
        value = 18 + 8 * each.header.magic + 8
        content = bytes(each.view[value:])
        content = bytes(decompress(Codec(each.header.codec_id), content, 1 << 20))
        found.append((each.header.base_offset, bytes(each.view[16 : value - 4]), content))
    return found


@_with_name(*SUBJECTS, "zstd-behind", codecs=(None, "gzip", "snappy"))
def test_conversion_has_kafka_s_bytes_outside_compressed_values(recorded: Vector) -> None:
    """Snappy's and zlib's streams depend on the library's build and version."""
    theirs, ours = (
        _unwrapped(before_padding(record_set))
        for record_set in (_record_set(recorded), b"".join(_conversion(recorded).chunks()))
    )
    # By a few bytes, another message may be the first that is cut.
    alike = min(len(theirs), len(ours))
    assert alike >= max(len(theirs), len(ours), 2) - 1
    assert theirs[:alike] == ours[:alike]


@_with_name("codec", "transactions", "compacted")
def test_conversion_in_small_chunks_has_the_same_messages(recorded: Vector) -> None:
    """But for padding, which is in chunks of that size, too."""
    small, large = (
        b"".join(_conversion(recorded, chunk_bytes=size).chunks()) for size in (200, KAFKA_CHUNK_BYTES)
    )
    assert before_padding(small) == before_padding(large)
    assert len(small) == len(large)


def test_recordings_cover_every_version_and_codec() -> None:
    assert {(each.version, each.codec) for each in CONVERTED} >= {
        (version, codec) for version in MAGIC_OF_VERSION for codec in ("none", "gzip", "snappy", "lz4")
    }


@each_case("recorded", [each for each in CONVERTED if _name(each) == "zstd"], attrgetter("name"))
def test_zstd_is_refused_as_kafka_refuses_it(recorded: Vector) -> None:
    assert _partition(recorded).error_code == ERROR_UNSUPPORTED_COMPRESSION
    with pytest.raises(NotConvertible) as refused:
        _conversion(recorded)
    assert refused.value.code == ERROR_UNSUPPORTED_COMPRESSION


@_with_name("only-a-marker")
def test_conversion_is_empty_if_kafka_sends_only_padding(recorded: Vector) -> None:
    assert _record_set(recorded) == b"\xff" * 8 + (61).to_bytes(4)
    found = _conversion(recorded)
    assert (found.size, found.next_offset) == (0, _fetch_offset(recorded) + 1)


@_with_name("from-a-marker")
def test_batch_after_a_marker_is_not_repeated_as_by_kafka(recorded: Vector) -> None:
    theirs = _offsets(before_padding(_record_set(recorded)))
    ours = _offsets(before_padding(b"".join(_conversion(recorded).chunks())))
    assert ours == sorted(set(ours))
    assert len(theirs) > len(set(theirs))
    assert sorted(set(theirs)) == ours[: len(set(theirs))]
