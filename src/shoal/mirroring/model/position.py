"""
A committed position is a pair: where to go on in the source, and where that lands.

The source offset is the group's committed offset, as Kafka's tools show it.
All else is in the commit's metadata: ``shoal1`` and a JSON object. At most
4,096 bytes (the broker's ``offset.metadata.max.bytes``), in practice 400.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...client.committed_offsets import Committed
from ...errors import ConfigError
from .first_start import FirstStart

__all__ = ["SEQUENCES", "MirrorPosition", "ProducerIdentity", "topic_id_of"]

#: In front of the JSON; the number is the version of its layout.
_ANY_VERSION = "shoal"
_PREFIX = _ANY_VERSION + "1"

#: A sequence is of 31 bits: after the largest comes 0.
SEQUENCES = 2**31

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """
    Who writes to a destination partition.

    Attributes:
        producer_id: From the destination's InitProducerId; one a partition.
        producer_epoch: Its epoch.
        base: The destination offset that has sequence 0; 0 as long as nobody
            else wrote to the partition. Below 0 where the destination lost
            records after which the sequences go on.

    """

    producer_id: int
    producer_epoch: int
    base: int = 0

    def sequence(self, destination_offset: int) -> int:
        """Return the sequence of a batch that lands at an offset: the offset itself, modulo 2^31."""
        return (destination_offset - self.base) % SEQUENCES

    @property
    def sequence_is_offset(self) -> bool:
        """Whether sequences are the offsets themselves: what a broker that compares the two asks for."""
        return self.base % SEQUENCES == 0

    def moved(self, by: int) -> ProducerIdentity:
        """Return the same writer where its next sequence lands so many offsets later than it would have."""
        return replace(self, base=self.base + by)


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    """
    Everything before ``source_offset`` is at the destination, before ``destination_offset``.

    Attributes:
        source_offset: The next source offset to mirror.
        destination_offset: Where its first record lands.
        identity: Who writes there.
        origin: ``(source offset, destination offset)`` where the mirror of
            this partition began.
        last_batch: CRC of the fingerprint of the batch that ends at
            ``destination_offset``; None before the first.
        source_topic_id: As text; None where the cluster has no topic ids.
        destination_topic_id: Likewise.
        destination_leader_epoch: In which the last batch was acknowledged.
        source_leader_epoch: In which the last batch before ``source_offset``
            was written at the source (KIP-320); -1 where it does not say.
        rules: A digest of everything that decides what is copied.
        first_start: What the group remembers of its mirror's first start; None in pairs of older versions.

    """

    source_offset: int
    destination_offset: int
    identity: ProducerIdentity
    origin: tuple[int, int]
    last_batch: int | None
    source_topic_id: str | None
    destination_topic_id: str | None
    destination_leader_epoch: int
    rules: str
    source_leader_epoch: int = -1
    first_start: FirstStart | None = None

    def to_committed(self) -> Committed:
        """Return what a group commits."""
        values: dict[str, Any] = {
            "destination": self.destination_offset,
            "producer": [self.identity.producer_id, self.identity.producer_epoch, self.identity.base],
            "origin": self.origin,
            "last": self.last_batch,
            "topics": [self.source_topic_id, self.destination_topic_id],
            "epoch": self.destination_leader_epoch,
            "source_epoch": self.source_leader_epoch,
            "rules": self.rules,
        }
        if self.first_start is not None:
            values["first"] = self.first_start.to_json_object()
        return Committed(self.source_offset, _PREFIX + json.dumps(values, separators=(",", ":")))

    @classmethod
    def from_committed(cls, committed: Committed) -> MirrorPosition | None:
        """
        Read a commit back; None where it is not one of ours (then it is no pair).

        Raises:
            ConfigError: It is one of ours, and not to be read: to go on as if
                it were none could copy everything again.

        """
        if not committed.metadata.startswith(_ANY_VERSION):
            return None
        try:
            if committed.metadata.startswith(_PREFIX):
                return cls._from_values(committed.offset, json.loads(committed.metadata[len(_PREFIX) :]))
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ConfigError(
            f"the group holds a position of another version of shoal ({committed.metadata[:60]!r}); "
            "mirror with that version, or with another --group into empty topics"
        )

    @classmethod
    def _from_values(cls, source_offset: int, values: dict[str, Any]) -> MirrorPosition:
        source_topic_id, destination_topic_id = values["topics"]
        origin_source, origin_destination = values["origin"]
        producer_id, producer_epoch, base = values["producer"]
        return cls(
            source_offset,
            _offset(values["destination"]),
            ProducerIdentity(
                _offset(producer_id), _number(producer_epoch, 0, 15), _number(base, -(2**63), 63)
            ),
            (_offset(origin_source), _offset(origin_destination)),
            None if values["last"] is None else _number(values["last"], 0, 32),
            None if source_topic_id is None else _of(str, source_topic_id),
            None if destination_topic_id is None else _of(str, destination_topic_id),
            _number(values["epoch"], -1, 31),
            _of(str, values["rules"]),
            _number(values.get("source_epoch", -1), -1, 31),
            FirstStart.from_json_object(values["first"]) if "first" in values else None,
        )


def topic_id_of(text: str | None) -> uuid.UUID | None:
    """Return the topic id that a pair has; None if it has none, or a text that is no id."""
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError:
        return None


def _of(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _number(value: Any, low: int, bits: int) -> int:
    """Check that a number fits into the field that it will be sent in; anybody may commit to a group."""
    number = _of(int, value)
    if not low <= number < 1 << bits:
        raise ValueError(f"{number} is out of range")
    return number


def _offset(value: Any) -> int:
    return _number(value, 0, 63)
