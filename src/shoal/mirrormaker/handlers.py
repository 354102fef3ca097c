"""
Handlers: users' classes that change records or batches on their way through a mirror maker (KIP-3, KIP-712).

``--message.handler`` names the class. Each task makes one object of it, for one thread. If there is a text of
``--message.handler.args``, the constructor receives it, or the method ``init`` if the class has one (KIP-3).
The handler returns a list for each record or batch. An empty list drops it, several elements duplicate it,
and another topic or partition routes it. If a task starts over, the handler may receive a record again:
records that pass through a handler are mirrored at least once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ..client.consumer import ConsumerRecord, RawRecord
from ..mirroring.model.copy_options import Handling
from .loading import load

__all__ = [
    "MirrorMakerMessageHandler",
    "MirrorMakerRawBytesMessageHandler",
    "ProducerRecord",
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
