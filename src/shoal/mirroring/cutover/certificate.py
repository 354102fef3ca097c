"""
The certificate of a cut-over: both clusters at the cut, as JSON (docs/moving-a-cluster.md).

The way back begins from it. A file of another kind, of a newer layout, or whose content does not match its
digest, is refused with a sentence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...json_values import read_value, versioned
from ...topic_partition import TopicPartition

__all__ = [
    "Certificate",
    "CutCluster",
    "CutGroupOffset",
    "CutLog",
    "CutPartition",
    "read_certificate",
]

_TYPE = "shoal cutover"

#: The version of the layout. A reader refuses later ones.
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CutCluster:
    """
    A cluster.

    Attributes:
        cluster_id: The cluster's id; None before Kafka 0.10.1.
        servers: Its bootstrap servers, as they were given.

    """

    cluster_id: str | None
    servers: str


@dataclass(frozen=True, slots=True)
class CutLog:
    """
    One side of a partition at the cut.

    Attributes:
        topic: The topic's name at this cluster.
        topic_id: Its id as text; None without topic ids.
        start: The log's first offset.
        end: Its end. The cut is at the ends of both sides.
        leader_epoch: The leader epoch of that moment; -1 without epochs.

    """

    topic: str
    topic_id: str | None
    start: int
    end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CutPartition:
    """
    A partition at the cut.

    Attributes:
        partition: Its number, the same at both clusters.
        destination: The log of the copy.
        origin: The offsets of both sides at which the mirror had begun; None if nothing was ever copied.
        records: The number of records that were compared and are the same.
        batches: The number of the source's batches that were compared and are the same.

    """

    partition: int
    source: CutLog
    destination: CutLog
    origin: tuple[int, int] | None
    records: int
    batches: int

    @property
    def source_partition(self) -> TopicPartition:
        """The partition at the source."""
        return TopicPartition(self.source.topic, self.partition)


@dataclass(frozen=True, slots=True)
class CutGroupOffset:
    """
    An offset of a consumer group at the cut.

    Attributes:
        topic: The topic's name at the source.
        source_offset: The offset that the group had committed at the source.
        destination_offset: The offset that it has at the destination; None if it has none.
        exactness: How exact the translation is: ``exact`` or ``at least``; None without one.
        action: The treatment of the offset, as ``shoal groups`` prints it.

    """

    group: str
    topic: str
    partition: int
    source_offset: int
    destination_offset: int | None
    exactness: str | None
    action: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """
    Both clusters at a cut.

    Attributes:
        at: The time at which the certificate was made, in UTC (ISO 8601).
        mirror_group: The mirror's group on the source cluster.
        rules: The digest of the rules of the copy.
        topics: The names of the topics at the destination, by those at the source.
        partitions: The partitions, by topic and number.
        groups: The offsets of the consumer groups, by group, topic and number.
        gates_s: How many seconds each gate took, by its name.

    """

    at: str
    source: CutCluster
    destination: CutCluster
    mirror_group: str
    rules: str
    topics: Mapping[str, str]
    partitions: tuple[CutPartition, ...]
    groups: tuple[CutGroupOffset, ...]
    gates_s: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the certificate as values of JSON, with their digest."""
        values = {"type": _TYPE, "version": _VERSION, **asdict(self)}
        return {**values, "digest": _digest(values)}

    @classmethod
    def from_json_object(cls, values: Any) -> Certificate:
        """
        Read a certificate. Names that this version does not know are ignored.

        Raises:
            ValueError: The values are no certificate. So are KeyError and TypeError.

        """
        values = versioned(values, _TYPE, _VERSION)
        if values["digest"] != _digest(values):
            raise ValueError(
                "its digest does not match its content, so the file was damaged or changed. Use the file "
                "that the cut-over wrote"
            )
        found: Certificate = read_value(cls, values)
        return found


def _digest(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all values but the digest, without regard to order and white space."""
    content = {name: value for name, value in values.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_certificate(file: str) -> Certificate:
    """
    Read a certificate from its file.

    Raises:
        ConfigError: The file cannot be read, or is no certificate of this version.

    """
    try:
        return Certificate.from_json_object(json.loads(Path(file).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"the certificate {file!r} cannot be read: {error.strerror}") from None
    except KeyError as error:
        why = f"{error} is missing"
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        why = str(error)
    raise ConfigError(f"the file {file!r} is not a certificate of a cut-over: {why}")
