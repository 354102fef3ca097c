"""
Users' classes: handlers change records or batches on their way, and listeners receive rebalances (KIP-3).

``--message.handler`` names a handler. Each task makes one object of it, for one thread. If there is a text of
``--message.handler.args``, the constructor receives it, or the method ``init`` if the class has one (KIP-3).
The handler returns a list for each record or batch. An empty list drops it, several elements duplicate it,
and another topic or partition routes it. If a task starts over, the handler may receive a record again:
records that pass through a handler are mirrored at least once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from ..client.consumer import ConsumerRecord, RawRecord
from ..errors import ConfigError
from ..mirroring.model.copy_options import Handling
from ..named_class import find_class, short_error

__all__ = [
    "MirrorMakerMessageHandler",
    "MirrorMakerRawBytesMessageHandler",
    "MirrorMakerRebalanceListener",
    "ProducerRecord",
    "load",
    "load_handler",
]

T = TypeVar("T")


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


class MirrorMakerRebalanceListener:
    """
    Receives the rebalances of the group. Derive your class from it.

    ``--consumer.rebalance.listener`` names the class. Each process makes one object of it, with the text of
    ``--rebalance.listener.args`` if there is any. One thread of the driver calls it. An exception ends the
    mirror maker, and the positions of acknowledged records are committed.

    """

    def before_releasing_partitions(self, partition_ownership: Mapping[str, frozenset[int]]) -> None:
        """
        Handle revoked partitions: their tasks have ended, and their positions are committed.

        The group waits for this call, up to ``max.poll.interval.ms``. There is no call if the group has
        already assigned the partitions to others, because this process sent no heartbeat for too long.

        Args:
            partition_ownership: The revoked partitions, by source topic.

        """

    def before_starting_fetchers(
        self, consumer_id: str, partition_assignment: Mapping[str, Mapping[int, str]]
    ) -> None:
        """
        Handle the group's assignment, before tasks read the new partitions.

        Args:
            consumer_id: This process's member id.
            partition_assignment: The member id of each partition of the whole group, by source topic and
                partition.

        """


def load_handler(handling: Handling) -> MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler:
    """
    Make the handler.

    Raises:
        ConfigError: There is no such class, it has the other base class, or its object cannot be made.

    """
    kind: type[MirrorMakerMessageHandler | MirrorMakerRawBytesMessageHandler] = (
        MirrorMakerRawBytesMessageHandler if handling.raw else MirrorMakerMessageHandler
    )
    return load("--message.handler", handling.handler, handling.args, kind, takes_init=True)


def load(option: str, name: str, args: str | None, kind: type[T], *, takes_init: bool = False) -> T:
    """
    Make an object of a class, with the text of its arguments if there is one.

    Args:
        option: The option that errors name, such as ``--message.handler``.
        name: ``package.module:Class``.
        args: The only argument of the class; None for no argument.
        kind: The base class that the class must have.
        takes_init: Whether a class with a method ``init`` has no arguments, and receives the text, or None,
            by ``init(args)``, as in KIP-3.

    Raises:
        ConfigError: There is no such class, it has another base class, or its object cannot be made.

    """
    found = find_class(option, name)
    if not issubclass(found, kind):
        raise ConfigError(f"{option} {name}: it is not a subclass of {kind.__name__}")
    try:
        if takes_init and callable(getattr(found, "init", None)):
            made = found()
            made.init(args)  # type: ignore[attr-defined]
        else:
            made = found(*([] if args is None else [args]))
    except ConfigError as error:
        raise ConfigError(f"{option} {name}: {error}") from error
    except Exception as error:
        given = "without arguments" if args is None else f"with {args!r}"
        raise ConfigError(
            f"{option} {name}: cannot create the class {given}: {short_error(error)}"
        ) from error
    return made
