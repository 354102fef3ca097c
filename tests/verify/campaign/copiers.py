"""Copies of a source log, as several tools make them."""

from __future__ import annotations

import enum
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shoal.client.config import IsolationLevel
from shoal.mirroring.model.ranges import CopyRange
from shoal.records import Codec
from tests.mirrormaker.makers import Makers
from tests.spark.without_jvm import without_jvm
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until

from .logs import Piece, Placed, stored_batches

__all__ = ["Copier", "Copy", "copy_by_makers", "copy_by_shoal", "cut"]


class Copier(enum.Enum):
    """The tool that makes the copy."""

    #: Whole batches, by a task of `shoal mirror`.
    SHOAL = "shoal"
    #: The same, to brokers that recompress each batch.
    RECOMPRESSED = "shoal, recompressed"
    #: Cut into batches again, as Java's producer does it.
    MIRROR_MAKER_2 = "MirrorMaker 2"
    #: The same, in transactions.
    EXACTLY_ONCE = "MirrorMaker 2, exactly once"
    #: Cut into batches again, as librdkafka does it.
    CONFLUENT = "confluent-kafka"
    #: `shoal mirror-maker --use.raw.bytes`, and without it.
    RAW_MAKER = "mirror-maker, raw"
    DEEP_MAKER = "mirror-maker"

    @property
    def is_maker(self) -> bool:
        """Whether it is `shoal mirror-maker`, which copies many topics at once."""
        return self in (Copier.RAW_MAKER, Copier.DEEP_MAKER)

    @property
    def keeps_create_time(self) -> bool:
        """Whether it copies the create times of LogAppendTime batches; consumers see the append times."""
        return self in (Copier.SHOAL, Copier.RECOMPRESSED, Copier.RAW_MAKER)


@dataclass(frozen=True)
class Copy:
    """
    Which records of which topic to copy, and to where.

    Attributes:
        records: The records to copy.
        behind: Those behind them: shoal copies whole batches, so that some of these are copied too.

    """

    topic: str
    copy_topic: str
    records: Sequence[Placed]
    behind: Sequence[Placed] = ()


def cut(rng: random.Random, copier: Copier, found: Sequence[Placed]) -> list[Piece]:
    """Cut records into batches as another producer does it."""
    codecs = {
        Copier.MIRROR_MAKER_2: [Codec.LZ4, Codec.GZIP, Codec.NONE],
        Copier.EXACTLY_ONCE: [Codec.LZ4, Codec.GZIP, Codec.NONE],
    }.get(copier, list(Codec))
    codec = rng.choice(codecs)
    biggest = rng.choice([1, 3, 30, 500])
    pieces = []
    at = 0
    while at < len(found):
        part = found[at : at + rng.randrange(1, biggest + 1)]
        at += len(part)
        # librdkafka sends a batch as it is if compression would not make it smaller.
        own = Codec.NONE if copier is Copier.CONFLUENT and len(part) < 2 else codec
        is_transaction = copier is Copier.EXACTLY_ONCE and rng.random() < 0.3
        pieces.append(Piece(own, [*part], is_transaction=is_transaction))
    return pieces


def copy_by_shoal(
    rng: random.Random, brokers: TwoBrokers, copy: Copy, *, is_recompressed: bool
) -> list[Piece]:
    """Run a task of `shoal mirror` up to the last of these records; return what it has written."""
    theirs = brokers.destination.log(copy.copy_topic)
    begin = theirs.log_end_offset
    first, last = (copy.records[0].offset, copy.records[-1].offset + 1) if copy.records else (0, 0)
    if begin:
        brokers = brokers.taking_over(first, copy.topic)
    brokers.run([CopyRange(copy.topic, 0, copy.copy_topic, first, last)])
    pieces = _pieces_behind(brokers, copy, begin)
    codec = rng.choice(list(Codec))
    return [replace(each, codec=codec, batch=None) for each in pieces] if is_recompressed else pieces


def _pieces_behind(brokers: TwoBrokers, copy: Copy, begin: int) -> list[Piece]:
    """Return the batches that were written from an offset on; they must hold the records."""
    pieces = []
    left = [*copy.records, *copy.behind]
    for stored in stored_batches(brokers.destination.log(copy.copy_topic)):
        if stored.header.base_offset < begin:
            continue
        count = len(stored.records)
        expected, left = left[:count], left[count:]
        made = [each.item for each in stored.records]
        assert made == [each.item for each in expected], f"{copy.topic}: {stored.header}, {made}, {expected}"
        pieces.append(Piece(Codec(stored.header.codec_id), [*expected], bytes(stored.view)))
    assert len(left) <= len(copy.behind), copy.topic
    return pieces


@contextmanager
def _makers(brokers: TwoBrokers) -> Iterator[Makers]:
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory(prefix="shoal-campaign-") as directory,
        without_jvm(patched),
    ):
        patched.setenv("XDG_STATE_HOME", directory)
        yield Makers(Path(directory), brokers.source, brokers.destination)


def copy_by_makers(
    brokers: TwoBrokers, copier: Copier, level: IsolationLevel, copies: Sequence[Copy]
) -> list[list[Piece]]:
    """Run one `shoal mirror-maker` for some topics, until it has written all records."""
    if not copies:
        return []
    with _makers(brokers) as makers:
        makers.consumer_properties = f"isolation.level={level.name.lower()}\n"
        way = ["--use.raw.bytes"] if copier is Copier.RAW_MAKER else []
        names = "|".join(re.escape(each.topic) for each in copies)
        maker = makers.start(*way, include=names)

        def are_written() -> bool:
            assert maker.is_running, maker.result()
            logs = [brokers.destination.log(each.copy_topic) for each in copies]
            return all(
                log.log_end_offset >= len(each.records) for log, each in zip(logs, copies, strict=True)
            )

        wait_until(are_written, 60)
        maker.end()
    return [_pieces_behind(brokers, each, 0) for each in copies]
