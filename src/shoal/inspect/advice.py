"""
Findings: facts of a topic that are small or unusual, their causes, and settings that would help.

Each rule reads the counts of one topic. A rule names a cause only if the counts show it: full batches of the
default size, or records that come alone. The names of settings are
those of Kafka's producer, unless a sentence names another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .facts import FUTURE_MS, Facts

__all__ = ["SMALL_BATCH_BYTES", "Finding", "advise"]

#: The producer's default ``batch.size``: a batch that is much smaller was sent before it was full.
DEFAULT_BATCH_SIZE = 16_384
SMALL_BATCH_BYTES = DEFAULT_BATCH_SIZE // 2

#: Batches of this part of the default size and more, uncompressed, were sent because they were full. Beyond
#: the second part, the producer has a larger batch.size.
_FULL, _OVERFULL = 0.7, 1.1

#: The share of batches from which a fact is a property of the topic.
_NOTABLE = 0.05
_MOST = 0.5

#: In a smaller batch, a codec finds little that repeats.
_COMPRESSIBLE_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One conclusion about a topic.

    Attributes:
        topic: The topic's name.
        kind: A word for programs.
        text: A sentence with the numbers, and the cause if it shows.
        remedy: A sentence with the settings that would help.

    """

    topic: str
    kind: str
    text: str
    remedy: str


#: Kind, text and remedy of a finding.
_Advice: TypeAlias = tuple[str, str, str]


def advise(topics: Sequence[Facts]) -> tuple[Finding, ...]:
    """Return the findings about all topics, in the order of the topics and of the rules."""
    return tuple(Finding(topic.topic, *found) for topic in topics for rule in _RULES for found in rule(topic))


def _small(topic: Facts) -> Iterator[_Advice]:
    if topic.batches < 2 or topic.bytes_a_batch >= SMALL_BATCH_BYTES:
        return
    text = (
        f"batches have {topic.bytes_a_batch:,.0f} bytes and {topic.records_a_batch:,.1f} records on average"
    )
    full = None if topic.ratio is None else topic.bytes_a_batch * topic.ratio
    if full is not None and full >= DEFAULT_BATCH_SIZE * _FULL:
        by_default = f", about the default of batch.size ({DEFAULT_BATCH_SIZE:,})"
        yield (
            "full-batches",
            f"{text}: uncompressed they have {full:,.0f}"
            f"{by_default if full <= DEFAULT_BATCH_SIZE * _OVERFULL else ''}",
            f"Set batch.size={_larger(full)} at the producer, since the codec shrinks full batches",
        )
        return
    is_alone = topic.records_a_batch < 1.5
    alone = "most records were sent alone" if is_alone else "they were sent before they were full"
    yield (
        "small-batches",
        f"{text}: {alone}",
        "Set linger.ms=100 at the producer (by default 0 before Kafka 4.0, and 5 since). Do not wait for "
        "each record's acknowledgement before the next is sent. If a producer has fewer records than that "
        "for a partition, fewer partitions, fewer producers, or --rebatch at the mirror help",
    )


def _larger(size: float) -> int:
    """Return the power of two that is four to eight times a size."""
    return 1 << (int(size).bit_length() + 2)


def _many_producers(topic: Facts) -> Iterator[_Advice]:
    ids = topic.producer_ids + bool(topic.other_batches)
    if ids > 100 and topic.batches / ids < 10:
        yield (
            "short-lived-producers",
            f"{ids:,} producer ids wrote {topic.batches / ids:,.1f} batches each",
            "Keep one producer for the life of a process. Brokers remember each id for "
            "producer.id.expiration.ms",
        )


def _uncompressed(topic: Facts) -> Iterator[_Advice]:
    share = topic.codec_sizes["none"] / topic.size if topic.size else 0.0
    if share > _MOST and topic.bytes_a_batch >= _COMPRESSIBLE_BYTES:
        yield (
            "not-compressed",
            f"{share:.0%} of the bytes are not compressed",
            "Set compression.type=lz4 or zstd at the producer, if the values are not compressed already. A "
            "mirror of whole batches keeps the codec",
        )


def _several_codecs(topic: Facts) -> Iterator[_Advice]:
    notable = [name for name, count in topic.codecs.items() if count > _NOTABLE * topic.batches]
    if len(notable) > 1:
        yield (
            "several-codecs",
            f"batches have several codecs: {topic.codec_shares}",
            "Give all producers the same compression.type. At the destination, keep the topic's "
            "compression.type=producer, or its brokers compress again",
        )


def _transactions(topic: Facts) -> Iterator[_Advice]:
    for each in (each for each in topic.open_transactions if each.is_hanging):
        yield (
            "hanging-transaction",
            f"the transaction of producer {each.producer_id} in partition {each.partition.partition}, from "
            f"offset {each.first_offset} on, has no marker, and its coordinator does not have it. It holds "
            f"back {each.held_back:,} offsets",
            "If the producer no longer runs, end it: kafka-transactions.sh abort --topic "
            f"{each.partition.topic} --partition {each.partition.partition} "
            f"--start-offset {each.first_offset}",
        )


def _times(topic: Facts) -> Iterator[_Advice]:
    if topic.future_batches:
        yield (
            "future-timestamps",
            f"{topic.future_batches:,} batches have a timestamp more than an hour ahead, the furthest "
            f"{topic.most_ahead_ms / FUTURE_MS:,.1f} hours",
            "Correct the producer's clock or its timestamps (seconds, milliseconds or microseconds). At the "
            "destination, Kafka 4 refuses them unless the topic's message.timestamp.after.max.ms is larger. "
            "Retention by time keeps their segments for as long",
        )


def _old_formats(topic: Facts) -> Iterator[_Advice]:
    old = {magic: count for magic, count in sorted(topic.magics.items()) if magic < 2}
    if old:
        counts = ", ".join(f"{count:,} of magic {magic}" for magic, count in old.items())
        yield (
            "old-format",
            f"messages have a format before Kafka 0.11: {counts}",
            "Update the clients that write them. A mirror has to decode them: Produce takes batches alone",
        )


_RULES: tuple[Callable[[Facts], Iterator[_Advice]], ...] = (
    _small,
    _many_producers,
    _uncompressed,
    _several_codecs,
    _transactions,
    _times,
    _old_formats,
)
