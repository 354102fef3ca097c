"""The codecs: against other people's, and against streams that are larger than they look."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable

import aiokafka.codec as aiokafka
import cramjam
import kafka.codec as kafka_python
import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptBatch, UnsupportedBatch
from shoal.records import Codec, compress, decompress, decompress_legacy_lz4
from tests.peak_memory import peak_below

LIMIT = 1 << 20
CODECS = [codec for codec in Codec if codec != Codec.NONE]

_random = random.Random(1)
TEXT = b"".join(b'{"id": %d, "name": "anchovy", "weight": %d}' % (n, n * n % 977) for n in range(5000))
NOISE = _random.randbytes(300_000)
SAMPLES = {"nothing": b"", "a byte": b"x", "text": TEXT, "noise": NOISE, "zeros": bytes(500_000)}


def _arrow(name: str) -> Callable[[bytes], bytes]:
    # Arrow has Google's snappy and the codecs' own C libraries.
    return lambda data: pa.input_stream(pa.BufferReader(data), compression=name).read()


def _xerial_by_arrow(data: bytes) -> bytes:
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    out, position = b"", 16
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        block = data[position + 4 : position + 4 + size]
        plain = _unsigned_varint(block)
        assert plain <= 32 << 10
        out += pa.decompress(block, decompressed_size=plain, codec="snappy", asbytes=True)
        position += 4 + size
    return out


def _unsigned_varint(data: bytes) -> int:
    value = 0
    for index, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value
    raise AssertionError(data)


OTHERS: dict[Codec, list[Callable[[bytes], bytes]]] = {
    Codec.GZIP: [gzip.decompress, _arrow("gzip"), aiokafka.gzip_decode, kafka_python.gzip_decode],
    Codec.SNAPPY: [_xerial_by_arrow, aiokafka.snappy_decode, kafka_python.snappy_decode],
    Codec.LZ4: [lz4.frame.decompress, _arrow("lz4"), aiokafka.lz4_decode, kafka_python.lz4_decode],
    Codec.ZSTD: [_arrow("zstd"), aiokafka.zstd_decode, kafka_python.zstd_decode],
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", Codec)
def test_compressed_bytes_are_read_by_other_libraries_and_by_us(codec: Codec, sample: str) -> None:
    plain = SAMPLES[sample]
    compressed = compress(codec, plain)
    assert type(compressed) is bytes
    for of_same in (plain, bytearray(plain), memoryview(b"-" + plain)[1:]):
        assert compress(codec, of_same) == compressed
    assert decompress(codec, compressed, LIMIT) == plain
    assert decompress(codec, memoryview(b"-" + compressed)[1:], LIMIT) == plain
    for read in OTHERS.get(codec, []):
        # Most of them are not asked for a stream that has nothing in it.
        if plain:
            assert bytes(read(compressed)) == plain


def test_frames_have_the_java_client_s_settings() -> None:
    # Lz4BlockOutputStream: version 1, independent blocks of 64 KiB, no checksums but the descriptor's.
    frame = compress(Codec.LZ4, bytes(100_000) + NOISE)
    assert frame[:7] == bytes.fromhex("04224d18 60 40 82")
    assert frame[-4:] == bytes(4)
    sizes = []
    position = 7
    while position < len(frame) - 4:
        (size,) = struct.unpack_from("<I", frame, position)
        sizes.append(size)
        position += 4 + (size & 0x7FFFFFFF)
    assert len(sizes) == -(-400_000 // 65536)
    assert sizes[0] < 1000
    assert sizes[2] == 65536 | 0x80000000  # stored as it is, since lz4 makes noise longer
    # SnappyOutputStream: an empty stream is its header; GZIPOutputStream's has no time.
    assert compress(Codec.SNAPPY, b"") == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    assert compress(Codec.GZIP, b"x")[:8] == bytes.fromhex("1f8b0800 00000000")
    assert zstandard.get_frame_parameters(compress(Codec.ZSTD, TEXT)).window_size <= 8 << 20


@pytest.mark.parametrize("codec", Codec)
def test_empty_input_is_decompressed_to_empty_output(codec: Codec) -> None:
    assert decompress(codec, b"", 0) == b""
    assert decompress(codec, memoryview(b""), LIMIT) == b""
    assert decompress(codec, compress(codec, b""), 0) == b""


def _without_content_size(data: bytes) -> bytes:
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return writer.compress(data) + writer.flush()


FOREIGN: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip with name and time": (Codec.GZIP, gzip.compress),
    "gzip of several members": (Codec.GZIP, lambda d: gzip.compress(d[:1000]) + gzip.compress(d[1000:])),
    "gzip with empty members": (Codec.GZIP, lambda d: gzip.compress(b"") * 5 + gzip.compress(d)),
    "gzip with zeros behind it": (Codec.GZIP, lambda d: gzip.compress(d) + bytes(100)),
    "gzip of aiokafka": (Codec.GZIP, aiokafka.gzip_encode),
    "gzip of Arrow": (Codec.GZIP, lambda d: pa.compress(d, codec="gzip", asbytes=True)),
    "snappy, raw": (Codec.SNAPPY, lambda d: pa.compress(d, codec="snappy", asbytes=True)),
    "snappy in small blocks": (Codec.SNAPPY, lambda d: kafka_python.snappy_encode(d, True, 100)),
    "snappy of Redpanda": (
        Codec.SNAPPY,
        lambda d: (
            kafka_python.snappy_encode(d)[:8] + b"\1\0\0\0\1\0\0\0" + kafka_python.snappy_encode(d)[16:]
        ),
    ),
    "snappy, two streams": (
        Codec.SNAPPY,
        lambda d: kafka_python.snappy_encode(d[:7]) + kafka_python.snappy_encode(d[7:]),
    ),
    "lz4 of two frames": (Codec.LZ4, lambda d: lz4.frame.compress(d[:9]) + lz4.frame.compress(d[9:])),
    "lz4 of Arrow": (Codec.LZ4, lambda d: pa.compress(d, codec="lz4", asbytes=True)),
    "lz4 of cramjam": (Codec.LZ4, lambda d: bytes(cramjam.lz4.compress(d))),
    "zstd without content size": (Codec.ZSTD, _without_content_size),
    "zstd with a checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd, ultra": (Codec.ZSTD, zstandard.ZstdCompressor(level=22).compress),
    "zstd of two frames": (Codec.ZSTD, lambda d: _without_content_size(d[:9]) + _without_content_size(d[9:])),
}


@pytest.mark.parametrize("plain", [b"0123456789abcdef", TEXT, NOISE], ids=["short", "text", "noise"])
@pytest.mark.parametrize("name", FOREIGN)
def test_bytes_compressed_by_others_are_read(name: str, plain: bytes) -> None:
    codec, foreign = FOREIGN[name]
    assert decompress(codec, foreign(plain), LIMIT) == plain


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("block_linked", [False, True])
def test_lz4_frames_are_read_with_any_flags(
    block_linked: bool, block_checksum: bool, content_checksum: bool, store_size: bool
) -> None:
    frame = lz4.frame.compress(
        TEXT,
        block_linked=block_linked,
        block_checksum=block_checksum,
        content_checksum=content_checksum,
        store_size=store_size,
    )
    assert decompress(Codec.LZ4, frame, LIMIT) == TEXT


@pytest.mark.parametrize("store_size", [False, True])
def test_wrong_checksum_of_old_lz4_frames_is_ignored(store_size: bool) -> None:
    right = lz4.frame.compress(TEXT, store_size=store_size)
    at = 6 + 8 * store_size
    assert decompress_legacy_lz4(right, LIMIT) == TEXT
    for checksum in (0, right[at] ^ 1, 255):
        wrong = right[:at] + bytes((checksum,)) + right[at + 1 :]
        if wrong != right:
            with pytest.raises(CorruptBatch, match="not lz4"):
                decompress(Codec.LZ4, wrong, LIMIT)
        assert decompress_legacy_lz4(wrong, LIMIT) == TEXT
        assert decompress_legacy_lz4(memoryview(wrong), LIMIT) == TEXT
    old = kafka_python.lz4_encode_old_kafka(TEXT)
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, old, LIMIT)
    assert decompress_legacy_lz4(old, LIMIT) == TEXT
    for cut in range(20):
        if cut:
            with pytest.raises(CorruptBatch):
                decompress_legacy_lz4(old[:cut], LIMIT)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("plain", [TEXT[:3000], bytes(70_000), TEXT], ids=["short", "zeros", "text"])
def test_output_of_exactly_the_limit_is_accepted(name: str, plain: bytes) -> None:
    codec = Codec[name.upper()]
    for compressed in [
        compress(codec, plain),
        *(foreign(plain) for of, foreign in FOREIGN.values() if of == codec),
    ]:
        assert decompress(codec, compressed, len(plain)) == plain
        for limit in (len(plain) - 1, len(plain) // 2, 1, 0):
            with pytest.raises(UnsupportedBatch) as caught:
                decompress(codec, compressed, limit, base_offset=77)
            assert all(each in str(caught.value) for each in ("77", str(limit), "decompressed"))


@pytest.mark.parametrize("codec", CODECS)
def test_cut_or_foreign_stream_is_corrupt(codec: Codec) -> None:
    whole = compress(codec, TEXT[:300])
    # Cut between two blocks, snappy's framing is whole: it has no end.
    for cut in range(1, len(whole)):
        if not (codec == Codec.SNAPPY and cut == 16):
            with pytest.raises(CorruptBatch, match=f"{codec.name.lower()}"):
                decompress(codec, whole[:cut], LIMIT)
    for data in (b"x", NOISE[:1000], b"\xff" * 100, b"\x82SNAPPY\0" + b"\xff" * 20):
        with pytest.raises((CorruptBatch, UnsupportedBatch)):
            decompress(codec, data, LIMIT)


def gzip_bomb() -> bytes:
    """A quarter of a gigabyte in 256 KB."""
    return gzip.compress(bytes(16 << 20)) * 16


def gzip_bomb_in_one_member() -> bytes:
    """A quarter of a gigabyte in 256 KB."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(stream.compress(bytes(16 << 20)) for _ in range(16)), stream.flush()])


def snappy_bomb() -> bytes:
    """A quarter of a gigabyte in 12 MB: no more than 21 to 1 is to be had of snappy."""
    block = bytes(cramjam.snappy.compress_raw(bytes(16 << 20)))
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (struct.pack(">i", len(block)) + block) * 16


def snappy_lie() -> bytes:
    """Four gigabytes, says its first number."""
    return b"\xff\xff\xff\xff\x0f" + bytes(100)


def lz4_bomb() -> bytes:
    """A quarter of a gigabyte in 1 MB, in blocks of 4 MB."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    return bytes.fromhex("04224d18 60 70 73") + (struct.pack("<I", len(block)) + block) * 64 + bytes(4)


def zstd_bomb() -> bytes:
    """A quarter of a gigabyte in 8 KB: 2,048 blocks of one byte each that is to be repeated 131,072 times."""
    block = (128 << 10) << 3 | 1 << 1
    frame = bytes.fromhex("28b52ffd 00 58")  # no content size; a window of 2 MB
    return frame + (block.to_bytes(3, "little") + b"\0") * 2047 + (block | 1).to_bytes(3, "little") + b"\0"


def zstd_lie() -> bytes:
    """A frame of three bytes that says that it holds a terabyte."""
    return (
        bytes.fromhex("28b52ffd c0 58") + (1 << 40).to_bytes(8, "little") + bytes.fromhex("190000") + b"abc"
    )


BOMBS = {
    bomb.__name__: (Codec[bomb.__name__.split("_")[0].upper()], bomb)
    for bomb in (gzip_bomb, gzip_bomb_in_one_member, snappy_bomb, snappy_lie, lz4_bomb, zstd_bomb)
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_refused_before_it_expands(name: str) -> None:
    codec, bomb = BOMBS[name]
    data = bomb()
    limit = 4 << 20
    refused = pytest.raises(UnsupportedBatch, match=rf"expand.*{limit}")
    with peak_below(limit + (2 << 20)), refused:
        decompress(codec, data, limit)


def test_frame_with_a_false_size_allocates_no_more_than_the_limit() -> None:
    with peak_below(LIMIT + (1 << 20)), pytest.raises((CorruptBatch, UnsupportedBatch)):
        decompress(Codec.ZSTD, zstd_lie(), LIMIT)


_IN_A_PROCESS_OF_ITS_OWN = """
import importlib.util, os, sys
sys.path[:0] = sys.argv[2:]
from rig.process import forget_peak_rss_of, peak_rss_of
from shoal.errors import UnsupportedBatch
from shoal.records import decompress
spec = importlib.util.spec_from_file_location("bombs", sys.argv[1])
bombs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bombs)
for name, (codec, bomb) in bombs.BOMBS.items():
    data = bomb()
    forget_peak_rss_of(os.getpid())  # of what made the bomb
    before = peak_rss_of(os.getpid())
    try:
        decompress(codec, data, 32 << 20)
    except UnsupportedBatch:
        print(name, peak_rss_of(os.getpid()) - before)
"""


def test_bombs_take_no_native_memory() -> None:
    """tracemalloc does not count cramjam's allocations in Rust; the kernel does."""
    process = subprocess.run(
        [sys.executable, "-c", _IN_A_PROCESS_OF_ITS_OWN, __file__, *sys.path],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    grown = dict(line.split() for line in process.stdout.splitlines())
    assert grown.keys() == BOMBS.keys()
    # The limit, and as much for the codec's own buffers: a bomb has eight times the limit at least.
    assert all(int(each) < 2 * (32 << 20) for each in grown.values()), grown


def test_many_empty_members_are_handed_to_zlib_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is left, for each member, would be quadratic."""
    begin = zlib.decompressobj
    handed = 0

    class Counting:
        def __init__(self, wrapping: int) -> None:
            self._member = begin(wrapping)

        def decompress(self, data: memoryview, most: int) -> bytes:
            nonlocal handed
            handed += len(data)
            return self._member.decompress(data, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    counted = []
    for members in (5_000, 10_000):
        handed = 0
        assert decompress(Codec.GZIP, gzip.compress(b"", mtime=0) * members, LIMIT) == b""
        counted.append(handed)
    assert counted[1] < 3 * counted[0]


@given(st.sampled_from(CODECS), st.binary(max_size=5000))
def test_compressed_and_decompressed_bytes_are_equal(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


def test_small_blocks_of_snappy_take_no_memory_each() -> None:
    block = struct.pack(">i", 1) + b"\0"  # five bytes that expand to none
    stream = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + block * 100_000
    with peak_below(len(stream)):
        assert decompress(Codec.SNAPPY, stream, 1 << 20) == b""
