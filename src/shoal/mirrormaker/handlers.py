"""
Handlers: users' classes that change records or batches on their way through a mirror maker (KIP-3, KIP-712).

A handler is a class that is named with ``--message.handler``. Each task makes one object of it, for one
thread, with the text of ``--message.handler.args`` if there is any: by the constructor, or by the method
``init`` if the class has one (KIP-3). The handler returns a list for each record or batch: an empty list
drops it, several elements duplicate it, another topic or partition routes it. A task that starts over may see
the same record again: records that pass through a handler are mirrored at least once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from ..client.consumer import ConsumerRecord, RawRecord
from ..errors import ConfigError
from ..mirroring.model.copy_options import COPY_DEFAULTS, Handling
from ..mirroring.model.options import Start
from ..mirroring.model.topics import TopicSelection
from ..records import Codec, read_records, split, write_batch
from .loading import load

__all__ = [
    "ConvertCodec",
    "Filter",
    "MirrorMakerMessageHandler",
    "MirrorMakerRawBytesMessageHandler",
    "ProducerRecord",
    "RenameTopics",
    "load_handler",
]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """
    A record to be produced.

    Attributes:
        partition: Where to; None to have the key decide, as Java's producer does.
        timestamp: In milliseconds; -1 for now.
        headers: Names and values, in their order.

    """

    topic: str
    partition: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, record: ConsumerRecord) -> Self:
        """Return what a record becomes where nothing is changed: the same, in the same partition."""
        return cls(record.topic, record.partition, record.timestamp, record.key, record.value, record.headers)


class MirrorMakerMessageHandler:
    """Sees each record, decoded; to be derived from. Not to be used with ``--use.raw.bytes``."""

    def handle(self, record: ConsumerRecord) -> Sequence[ProducerRecord]:
        """
        Return what a record becomes.

        Whatever this raises counts as a failure to send the record: ``--abort.on.send.failure``. Nothing of
        the record is sent then, and unless it is left out, nothing of the partition behind it.

        """
        return [ProducerRecord.of(record)]


class MirrorMakerRawBytesMessageHandler:
    """Sees each batch, unopened; to be derived from, for ``--use.raw.bytes`` (KIP-712)."""

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """
        Return what a batch becomes: ``dataclasses.replace(batch, topic=…, partition=…)``, say.

        The ``value`` is read-only, and has to be a whole batch; the destination assigns new offsets. An
        exception counts as a failure to send the batch.

        """
        return [batch]


def load_handler(handling: Handling) -> MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler:
    """
    Make the handler.

    Raises:
        ConfigError: There is none, it is of the other sort, or it cannot be made.

    """
    kind: type[MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler] = (
        MirrorMakerRawBytesMessageHandler if handling.raw else MirrorMakerMessageHandler
    )
    if handling.handler is None:
        return kind()
    return load("--message.handler", handling.handler, handling.args, kind, takes_init=True)


# Ready ones


class RenameTopics(MirrorMakerRawBytesMessageHandler):
    r"""Gives topics other names; made with ``REGEX=REPLACEMENT``, as ``(.*)=west.\1``: see ``--rename``."""

    def __init__(self, args: str) -> None:
        self._selection = TopicSelection("(.*)", rename=args)

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """Return the batch with its topic renamed."""
        return [replace(batch, topic=self._selection.destination_of(batch.topic))]


class Filter(MirrorMakerRawBytesMessageHandler):
    r"""
    Lets batches pass by topic and by time, from their headers alone.

    Made with what is wanted, separated by semicolons: ``topics=REGEX`` (whole names), ``not=REGEX``,
    ``from=TIME``, ``until=TIME``; a time is milliseconds since 1970 or ISO-8601. A header has the time of its
    newest record: a batch passes where that is at or after ``from``, and before ``until``. One without a time
    (-1) is before any ``from``.

    """

    def __init__(self, args: str) -> None:
        wanted = dict(each.partition("=")[::2] for each in map(str.strip, args.split(";")) if each)
        self._topics = _regex(wanted.pop("topics", ".*"))
        self._not = _regex(wanted.pop("not", "(?!)"))
        self._from_ms = _milliseconds(wanted.pop("from")) if "from" in wanted else None
        self._until_ms = _milliseconds(wanted.pop("until")) if "until" in wanted else None
        if wanted:
            raise ConfigError(f"{', '.join(wanted)} is none of topics, not, from, until")

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """Return the batch if it passes."""
        passes = (
            self._topics.fullmatch(batch.topic) is not None
            and self._not.fullmatch(batch.topic) is None
            and (self._from_ms is None or batch.max_timestamp >= self._from_ms)
            and (self._until_ms is None or batch.max_timestamp < self._until_ms)
        )
        return [batch] if passes else []


class ConvertCodec(MirrorMakerRawBytesMessageHandler):
    """Recompresses batches; made with a codec: ``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``."""

    def __init__(self, args: str) -> None:
        try:
            self._codec = Codec[args.strip().upper()]
        except KeyError:
            choices = ", ".join(each.name.lower() for each in Codec)
            raise ConfigError(f"{args!r} is no codec; there are {choices}") from None

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """Return the batch in the wanted codec."""
        if batch.codec is self._codec:
            return [batch]
        (opened,) = split(batch.value)
        records = read_records(opened, COPY_DEFAULTS.max_decompressed_bytes)
        if opened.header.is_log_append_time:
            records = [each._replace(timestamp=opened.header.max_timestamp) for each in records]
        made = write_batch(records, self._codec)
        return [replace(batch, codec=self._codec, value=made.view.toreadonly())]


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text}: not a regular expression: {error}") from None


def _milliseconds(text: str) -> int:
    timestamp_ms = Start.parse("timestamp", text).timestamp_ms
    if timestamp_ms < 0:
        raise ConfigError(f"{text}: no time")
    return timestamp_ms
