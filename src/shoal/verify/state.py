"""
How far topics were compared and are equal, in a file (``--state FILE``): the next comparison continues there.

The consumer group's positions are the mirror's. These are the verifier's. A partition that differs, or that
could not be compared, keeps its position, so that the next comparison finds the same again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

from ..client.cluster import Cluster
from ..errors import ConfigError
from ..json_values import read_value, versioned
from ..result_file import write_result_file
from ..topic_partition import TopicPartition

__all__ = ["NamedPair", "VerifiedPartition", "VerifyState", "read_state", "topic_ids", "write_state"]

_TYPE = "shoal verify state"

#: The version of the layout. A reader refuses later ones.
_VERSION = 1

#: The ids of the source's and the destination's cluster or topic as text; None without ids.
NamedPair: TypeAlias = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """
    How far a partition is equal.

    Attributes:
        source: The partition.
        destination: The copy.
        topic_ids: The ids of both topics.
        reached: The offsets of both sides up to which both are equal.

    """

    source: TopicPartition
    destination: TopicPartition
    topic_ids: NamedPair
    reached: tuple[int, int]

    def __post_init__(self) -> None:
        for each in (*self.reached, self.source.partition, self.destination.partition):
            if not 0 <= each < 2**63:
                raise ValueError(f"{each} is not an offset or a partition")


@dataclass(frozen=True, slots=True)
class VerifyState:
    """
    All positions.

    Attributes:
        clusters: The ids of both clusters; None before Kafka 0.10.1.
        partitions: The partitions.

    """

    clusters: NamedPair
    partitions: tuple[VerifiedPartition, ...] = ()

    @property
    def by_source(self) -> dict[TopicPartition, VerifiedPartition]:
        """The partitions, by those of the source."""
        return {each.source: each for each in self.partitions}

    def check_clusters(self, clusters: NamedPair, file: str | None) -> None:
        """
        Make sure that the state, which is perhaps that of a file, is about two clusters.

        Raises:
            ConfigError: The state is about other clusters.

        """
        if self.clusters != clusters:
            raise ConfigError(
                f"--state {file!r} is about the clusters {self.clusters[0]} and {self.clusters[1]}, not "
                f"{clusters[0]} and {clusters[1]}. Name another file"
            )

    def of_topics(self, topics: Mapping[str, str], ids: Mapping[str, NamedPair]) -> VerifyState:
        """
        Return the state without the partitions of topics that were created again, or have another copy.

        Args:
            topics: The destination's names by the source's.
            ids: The ids of both topics by the source's names.

        """

        def is_known(each: VerifiedPartition) -> bool:
            name = each.source.topic
            return name not in topics or (
                each.destination.topic == topics[name] and not _is_another(each.topic_ids, ids[name])
            )

        return replace(self, partitions=tuple(filter(is_known, self.partitions)))

    def with_equal(self, equal: Iterable[VerifiedPartition]) -> VerifyState:
        """Return the state with the new positions of partitions."""
        known = self.by_source | {each.source: each for each in equal}
        return replace(self, partitions=tuple(known[each] for each in sorted(known)))


def topic_ids(source: Cluster, destination: Cluster, topics: Mapping[str, str]) -> dict[str, NamedPair]:
    """Return the ids of both topics by the source's names, as far as the metadata has them."""
    return {name: (_topic_id(source, name), _topic_id(destination, other)) for name, other in topics.items()}


def _topic_id(cluster: Cluster, name: str) -> str | None:
    topic = cluster.metadata.topics.get(name)
    return str(topic.topic_id) if topic is not None and topic.topic_id is not None else None


def _is_another(before: NamedPair, now: NamedPair) -> bool:
    return any(None not in pair and pair[0] != pair[1] for pair in zip(before, now, strict=True))


def read_state(file: str) -> VerifyState | None:
    """
    Read a state; None if there is no such file yet.

    Raises:
        ConfigError: The file cannot be read, is a link, belongs to another user, or has another content.

    """
    try:
        state: VerifyState = read_value(VerifyState, versioned(json.loads(_read_own(file)), _TYPE, _VERSION))
        return state
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--state {file!r}: {error.strerror}") from None
    except KeyError as error:
        why = f"{error} is missing"
    except (ValueError, TypeError, RecursionError) as error:
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


def write_state(file: str, state: VerifyState) -> None:
    """
    Write a state in one step.

    Raises:
        ShoalError: The file cannot be written.

    """
    values = {"type": _TYPE, "version": _VERSION, **asdict(state)}
    write_result_file("state", file, f"{json.dumps(values, indent=1)}\n", mode=0o600)
