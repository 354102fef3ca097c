"""
The positions of a verification that follows a mirror, in a file of its own (``--state FILE``).

The consumer group's positions are the mirror's. These are the verifier's: how far each partition was
compared, and what was found up to there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..mirroring.model.json_values import typed, versioned
from ..result_file import write_result_file
from ..topic_partition import TopicPartition
from .report import DifferenceKind

__all__ = ["FollowState", "VerifiedPartition", "read_state", "write_state"]

_TYPE = "shoal verify state"

#: The version of the layout. A reader refuses later ones.
_VERSION = 1


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """
    How far a partition was compared, and what was found.

    Attributes:
        destination: The copy.
        topic_ids: The ids of both topics as text; None without topic ids.
        reached: The offsets of both sides up to which both were compared.
        records: The number of records that are the same.
        batches: The number of the source's batches that are the same.
        differing: The number of records that differ, by kind.

    """

    destination: TopicPartition
    topic_ids: tuple[str | None, str | None]
    reached: tuple[int, int]
    records: int = 0
    batches: int = 0
    differing: Mapping[DifferenceKind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowState:
    """
    All positions.

    Attributes:
        clusters: The ids of the source and the destination cluster; None before Kafka 0.10.1.
        partitions: The partitions, by those of the source.

    """

    clusters: tuple[str | None, str | None]
    partitions: Mapping[TopicPartition, VerifiedPartition]

    def to_json_object(self) -> dict[str, Any]:
        """Return the state as values of JSON."""
        return {
            "type": _TYPE,
            "version": _VERSION,
            "clusters": list(self.clusters),
            "partitions": [
                {
                    "source": list(source),
                    "destination": list(each.destination),
                    "topic_ids": list(each.topic_ids),
                    "reached": list(each.reached),
                    "records": each.records,
                    "batches": each.batches,
                    "differing": {kind.value: count for kind, count in each.differing.items()},
                }
                for source, each in sorted(self.partitions.items())
            ],
        }

    @classmethod
    def from_json_object(cls, values: Any) -> FollowState:
        """
        Read a state. Names that this version does not know are ignored.

        Raises:
            ValueError: The values are no state. So are KeyError and TypeError.

        """
        values = versioned(values, _TYPE, _VERSION)
        first, second = values["clusters"]
        return cls(
            (_text_or_none(first), _text_or_none(second)),
            dict(_partition(each) for each in values["partitions"]),
        )


def _partition(values: Any) -> tuple[TopicPartition, VerifiedPartition]:
    ours, theirs = values["topic_ids"]
    here, there = (_count(each) for each in values["reached"])
    return _named(values["source"]), VerifiedPartition(
        _named(values["destination"]),
        (_text_or_none(ours), _text_or_none(theirs)),
        (here, there),
        _count(values["records"]),
        _count(values["batches"]),
        {DifferenceKind(kind): _count(count) for kind, count in values["differing"].items()},
    )


def _named(values: Any) -> TopicPartition:
    topic, partition = values
    return TopicPartition(typed(str, topic), _count(partition))


def _count(value: Any) -> int:
    if not 0 <= typed(int, value) < 2**63:
        raise ValueError(f"{value} is not an offset or a count")
    return int(value)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else typed(str, value)


def read_state(file: str) -> FollowState | None:
    """
    Read a state; None if there is no such file yet.

    Raises:
        ConfigError: The file cannot be read, is a link, belongs to another user, or has another content.

    """
    try:
        text = _read_own(file)
        return FollowState.from_json_object(json.loads(text))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--state {file!r}: {error.strerror}") from None
    except KeyError as error:
        why = f"{error} is missing"
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        why = str(error)
    raise ConfigError(f"--state {file!r} is not the state of a verification: {why}. Name another file")


def _read_own(file: str) -> str:
    """
    Read a file of this user or root: any other owner could have written that all was compared.

    In a shared directory another user could also have put a link to an older state of this user.
    """
    if Path(file).is_symlink():
        raise ConfigError(f"--state {file!r} is a symbolic link. Name the file itself")
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as stream:
        owner = os.fstat(stream.fileno()).st_uid
        if owner not in (os.geteuid(), 0):
            raise ConfigError(
                f"--state {file!r} belongs to user {owner}, who may have changed the positions in it. "
                "Name a file of your own"
            )
        return stream.read()


def write_state(file: str, state: FollowState) -> None:
    """
    Write a state in one step.

    Raises:
        ShoalError: The file cannot be written.

    """
    write_result_file("state", file, f"{json.dumps(state.to_json_object(), indent=1)}\n", mode=0o600)
