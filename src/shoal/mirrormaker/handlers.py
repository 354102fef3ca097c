"""
Handlers: users' classes that change records or batches on their way through a mirror maker (KIP-3, KIP-712).

``--message.handler`` names the class. Each task makes one object of it, for one thread. If there is a text of
``--message.handler.args``, the constructor receives it, or the method ``init`` if the class has one (KIP-3).
The handler returns a list for each record or batch. An empty list drops it, several elements duplicate it,
and another topic or partition routes it. If a task starts over, the handler may receive a record again:
records that pass through a handler are mirrored at least once.
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
from ..records import Codec, split, write_batch
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
    A record to produce.

    Attributes:
        partition: The destination partition; None to choose it by the key, as Java's producer does.
        timestamp: Unix time in milliseconds; -1 for now.
        headers: Names and values, in order.

    """

    topic: str
    partition: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, record: ConsumerRecord) -> Self:
        """Return an unchanged record, for the same topic and partition."""
        return cls(record.topic, record.partition, record.timestamp, record.key, record.value, record.headers)


class MirrorMakerMessageHandler:
    """Base class of handlers that receive decoded records. ``--use.raw.bytes`` needs the other base class."""

    def handle(self, record: ConsumerRecord) -> Sequence[ProducerRecord]:
        """
        Return the records to produce for a source record.

        An exception counts as a failure to send the record (``--abort.on.send.failure``). The task then sends
        no output of the record. Unless the option skips the record, the task also stops its partition there.

        """
        return [ProducerRecord.of(record)]


class MirrorMakerRawBytesMessageHandler:
    """Base class of handlers that receive compressed batches, for ``--use.raw.bytes`` (KIP-712)."""

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """
        Return the batches to produce for a source batch, for example with another topic.

        Use ``dataclasses.replace(batch, topic=…, partition=…)``. The ``value`` is read-only and must be a
        whole batch. The destination assigns new offsets. An exception counts as a failure to send the batch.

        """
        return [batch]


def load_handler(handling: Handling) -> MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler:
    """
    Make the handler.

    Raises:
        ConfigError: There is no such class, it has the other base class, or its object cannot be made.

    """
    kind: type[MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler] = (
        MirrorMakerRawBytesMessageHandler if handling.raw else MirrorMakerMessageHandler
    )
    if handling.handler is None:
        return kind()
    return load("--message.handler", handling.handler, handling.args, kind, takes_init=True)


# Handlers that come with shoal


class RenameTopics(MirrorMakerRawBytesMessageHandler):
    r"""Renames topics. The argument is ``REGEX=REPLACEMENT``, such as ``(.*)=west.\1``: see ``--rename``."""

    def __init__(self, args: str) -> None:
        self._selection = TopicSelection("(.*)", rename=args)

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """Return the batch for the renamed topic."""
        return [replace(batch, topic=self._selection.destination_of(batch.topic))]


class Filter(MirrorMakerRawBytesMessageHandler):
    r"""
    Selects batches by topic and time, by their headers alone.

    The argument is a list of conditions, separated by semicolons: ``topics=REGEX`` (whole names),
    ``not=REGEX``, ``from=TIME``, ``until=TIME``. A time is milliseconds since 1970 or ISO-8601. A header has
    the time of the batch's newest record. A batch passes if that time is at or after ``from`` and before
    ``until``. If a batch has no time (-1), it is before any ``from``.

    """

    def __init__(self, args: str) -> None:
        wanted = dict(each.partition("=")[::2] for each in map(str.strip, args.split(";")) if each)
        self._topics = _regex(wanted.pop("topics", ".*"))
        self._not = _regex(wanted.pop("not", "(?!)"))
        self._from_ms = _milliseconds(wanted.pop("from")) if "from" in wanted else None
        self._until_ms = _milliseconds(wanted.pop("until")) if "until" in wanted else None
        if wanted:
            raise ConfigError(f"{', '.join(wanted)} is not one of topics, not, from, until")

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
    """Recompresses batches. The argument is ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``."""

    def __init__(self, args: str) -> None:
        try:
            self._codec = Codec[args.strip().upper()]
        except KeyError:
            choices = ", ".join(each.name.lower() for each in Codec)
            raise ConfigError(f"codec {args!r} is not one of {choices}") from None

    def handle(self, batch: RawRecord) -> Sequence[RawRecord]:
        """Return the batch with the argument's codec."""
        if batch.codec is self._codec:
            return [batch]
        (opened,) = split(batch.value)
        records = COPY_DEFAULTS.decode(opened)
        if opened.header.is_log_append_time:
            records = [each._replace(timestamp=opened.header.max_timestamp) for each in records]
        made = write_batch(records, self._codec)
        return [replace(batch, codec=self._codec, value=made.view.toreadonly())]


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is not a regular expression: {error}") from None


def _milliseconds(text: str) -> int:
    timestamp_ms = Start.parse("timestamp", text).timestamp_ms
    if timestamp_ms < 0:
        raise ConfigError(f"{text!r} is not a time: use ISO 8601, or milliseconds since 1970")
    return timestamp_ms
