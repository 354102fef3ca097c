"""Records to load: of every kind, in batches of every size, and values of a usual size."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from rig.record import Record

__all__ = ["FIRST_TIMESTAMP", "JsonValues", "batches_of_every_size", "random_records"]

FIRST_TIMESTAMP = 1_600_000_000_000
"""September 2020: explicit create times, so that tests find a copy that loses them."""

LARGEST_BATCH = 1_000_000
"""Bytes; just below a broker's default max.message.bytes of 1,048,588."""


def random_records(rng: random.Random, count: int, value_bytes: int) -> list[Record]:
    """Make records of every kind: keys, null and empty keys, headers, tombstones, empty values.

    Args:
        value_bytes: Approximate size of most values, half of it random words.
    """
    return [_random_record(rng, value_bytes) for _ in range(count)]


def batches_of_every_size(rng: random.Random) -> list[list[Record]]:
    """Return batches of 1 to 1,500 records, of about 100 bytes to a megabyte."""
    large = replace(_random_record(rng, 10), value=_half_random(rng, 900_000))
    return [
        random_records(rng, 1, 100),
        random_records(rng, 1, 100),
        random_records(rng, 2, 100),
        random_records(rng, 13, 300),
        random_records(rng, 200, 300),
        random_records(rng, 1500, 20),
        random_records(rng, 1200, LARGEST_BATCH // 1000),
        [large],
    ]


class JsonValues:
    """Events in JSON, 1,000 bytes each, from a pool larger than any codec's window except zstd's.

    A batch of 16 compresses to about a half by lz4, one of 256 to about 30 % by gzip.
    """

    POOL = 4096
    SIZE = 1000

    def __init__(self, rng: random.Random) -> None:
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(400)]
        self._tails = [self._tail(rng, words) for _ in range(self.POOL)]

    def numbered(self, number: int) -> bytes:
        """Return a value that no other number has; numbers far apart also differ in their text."""
        return self._head(number) + self._tails[number * 2654435761 % self.POOL]

    @staticmethod
    def _head(number: int) -> bytes:
        return b'{"number": "%012d", ' % number

    @classmethod
    def _tail(cls, rng: random.Random, words: Sequence[str]) -> bytes:
        event = {
            "id": rng.getrandbits(64),
            "customer": f"customer-{rng.randrange(100_000)}",
            "status": rng.choice(["created", "paid", "shipped", "returned"]),
            "amount": rng.randrange(100_000) / 100,
            "note": "",
        }
        start = json.dumps(event)[1:-2].encode()
        note = " ".join(rng.choices(words, k=300)).encode()
        return start + note[: cls.SIZE - len(cls._head(0)) - len(start) - 2] + b'"}'


def _random_record(rng: random.Random, value_bytes: int) -> Record:
    return Record(
        key=rng.choice([None, b"", b"k%d" % rng.randrange(100), rng.randbytes(20)]),
        value=rng.choice([None, b"", *[_half_random(rng, value_bytes)] * 6]),
        headers=rng.choice([(), (), _random_headers(rng)]),
        timestamp=FIRST_TIMESTAMP + rng.randrange(100_000_000),
    )


def _random_headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers with a repeated name, a null and an empty value among them."""
    return (
        ("trace", rng.randbytes(16)),
        ("trace", b"again"),
        ("null", None),
        ("empty", b""),
        ("näme", "välue".encode()),
    )[rng.randrange(5) :]


def _half_random(rng: random.Random, size: int) -> bytes:
    """Return bytes that compress to about a half, as most real data does."""
    return rng.randbytes(size // 2) + b"shoal " * (size // 12)
