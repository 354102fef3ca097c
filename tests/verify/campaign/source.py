"""Random records, and source logs that hold them in batches of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal.records import Codec
from shoal_broker.storage.log import Log
from tests.world import batches
from tests.world.batches import Content
from tests.world.history import ABORT, COMMIT, NOW_MS, History

__all__ = ["SourceLog", "fill", "random_items"]

#: Records that are repeated.
_SAME = (Content(1, None, None), Content(978_307_200_000, b"beat", b""), Content(1, b"", None))


@dataclass
class SourceLog:
    """
    The source's log as it is written.

    Attributes:
        log: The log.
        aborted: The offsets of records in aborted transactions.
        has_two_times: Whether records have an append time that is not their create time.
        old_magics: The old message formats that it has.

    """

    log: Log
    aborted: set[int] = field(default_factory=set)
    has_two_times: bool = False
    old_magics: set[int] = field(default_factory=set)


#: No create time is so late, and brokers accept the times of the next hour.
_APPENDED_LATER_MS = 1_000_000


def _times(rng: random.Random, *, is_compacted: bool) -> Callable[[int], int]:
    # In a compacted topic no two records are the same: nothing shows which of them the cleaner has removed.
    repeating = [] if is_compacted else ["repeating", "old", "one", "random"]
    style = rng.choice(["ascending", "descending", *repeating])
    few = [1, 978_307_200_000, 0, NOW_MS, 1_000_000_000]
    return {
        "ascending": lambda n: NOW_MS + n,
        "repeating": lambda n: few[n // 7 % len(few)],
        "old": lambda n: rng.choice(few),
        "one": lambda n: 978_307_200_000,
        "random": lambda n: rng.randrange(1, NOW_MS),
        "descending": lambda n: NOW_MS - n,
    }[style]


def random_items(rng: random.Random, count: int, *, is_compacted: bool) -> list[Content]:
    """Make records of every kind; those of a compacted topic have keys that occur again, and tombstones."""
    time_of = _times(rng, is_compacted=is_compacted)
    sameness = rng.choice([0.0, 0.0, 0.02, 0.2, 1.0 if rng.random() < 0.2 else 0.05]) * (not is_compacted)
    keys = rng.choice([5, 40, count]) if is_compacted else 5
    has_keyless = not is_compacted or rng.random() < 0.2
    found: list[Content] = []
    while len(found) < count:
        number = len(found)
        if rng.random() < sameness:
            found += [rng.choice(_SAME)] * rng.randrange(1, 60)
            continue
        value = rng.choice([b"value %d" % number, b"value %d" % number, None, b"", rng.randbytes(20)])
        headers = rng.choice([(), (), (("h", b"%d" % number),), (("h", None), ("h", b""))])
        found.append(
            Content(time_of(number), _key(rng, number, keys, is_compacted, has_keyless), value, headers)
        )
    return found[:count]


def _key(rng: random.Random, number: int, keys: int, is_compacted: bool, has_keyless: bool) -> bytes | None:
    if not is_compacted:
        return rng.choice([b"key %d" % number, None, b"", b"k%d" % (number % keys)])
    if has_keyless and rng.random() < 0.2:
        return None
    return rng.choice([b"", *[b"k%d" % rng.randrange(keys)] * 9])


def fill(
    rng: random.Random, log: Log, found: Sequence[Content], *, is_compacted: bool, keeps_no_time: bool
) -> SourceLog:
    """
    Write records as batches of every kind; some have an append time that is not the create time.

    Args:
        is_compacted: Whether the cleaner will be at work on the log.
        keeps_no_time: Whether the copier keeps it if a message has no time, as in the oldest format.

    """
    source, history = SourceLog(log), History(log)
    # Of its own, so that earlier seeds make the same trials but for this.
    own = random.Random(log.name)
    has_two_times = not is_compacted and own.random() < 0.3
    old_share = own.choice([0, 0, 0, 0.1, 1]) * (not is_compacted)
    codec = rng.choice([None, *Codec])
    biggest = rng.choice([1, 3, 30, 200])
    is_idempotent = rng.random() < 0.5
    rest = list(found)
    while rest:
        count = rng.randrange(1, biggest + 1)
        part, rest = rest[:count], rest[count:]
        # The records of a compacted topic must differ, in their times if in nothing else.
        kinds = {"plain": 10, "holes": 1, "commit": 2, "abort": 2, "gap": 1, "append time": not is_compacted}
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        if kind == "gap":
            history.gap(rng.randrange(1, 5))
        begin = history.next_offset
        if own.random() < old_share:
            magic = own.choice([0, 1]) if keeps_no_time else 1
            source.old_magics.add(magic)
            # aiokafka, which reads them for the judgement, knows no lz4 with the wrong checksum of magic 0.
            old_codec = own.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY, *[Codec.LZ4] * magic])
            history.messages(part, magic, old_codec)
            continue
        size = 2 * len(part) if kind == "holes" else len(part)
        deltas = sorted(rng.sample(range(size), len(part)))
        in_transaction = kind in ("commit", "abort")
        append_time = max(0, part[-1].timestamp) if kind == "append time" else None
        if has_two_times and (kind == "append time" or (kind == "plain" and own.random() < 0.5)):
            append_time = NOW_MS + _APPENDED_LATER_MS + begin
            source.has_two_times = True
        elif append_time is not None:
            part = [each._replace(timestamp=append_time) for each in part]
        producer = {"producer_id": 77, "producer_epoch": 0, "base_sequence": begin}
        history.write(
            part,
            rng.choice(list(Codec)) if codec is None else codec,
            deltas=deltas,
            size=size,
            flags=batches.TRANSACTIONAL if in_transaction else 0,
            append_time=append_time,
            **(producer if in_transaction or is_idempotent else {}),
        )
        if in_transaction:
            history.marker(COMMIT if kind == "commit" else ABORT)
        if kind == "abort":
            source.aborted.update(begin + delta for delta in deltas)
    return source
