"""Prove translations: read the record that a consumer reads next, at both clusters, and compare."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import closing
from functools import cache
from typing import NamedTuple

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.scan import read_decided
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.offset_map import Exactness
from .report import Direction, GroupOffset, OffsetProof

__all__ = ["proofs"]

_BUFFER_BYTES = 1024 * 1024


class _Next(NamedTuple):
    """
    The next record that a consumer reads from an offset on.

    Attributes:
        times: Its timestamps: the create time, and the append time, which ``--keep-append-time`` keeps.

    """

    offset: int
    body: bytes
    times: Set[int | None]


def proofs(
    source: Cluster, destination: Cluster, settings: CopySettings, direction: Direction
) -> Callable[[GroupOffset], OffsetProof | None]:
    """
    Return a function that proves one translation; it returns None for an offset without one.

    Args:
        source: The source cluster of the mirror, with metadata of its topics by the first proof.
        destination: Its destination cluster, with metadata of the copies by the first proof.
        settings: The mirror's settings, which decide which records it copies.
        direction: From which cluster the offsets were read.

    """
    own = settings.source.isolation_level

    @cache  # many groups have the same offset
    def next_record(
        cluster: Cluster, level: IsolationLevel, partition: TopicPartition, offset: int
    ) -> _Next | ShoalError | None:
        try:
            with closing(read_decided(cluster, partition, offset, level, _BUFFER_BYTES)) as batches:
                for decision, batch in batches:
                    for record in () if decision.is_drop else settings.records_to_mirror(batch, offset):
                        times = {record.timestamp, batch.header.append_time}
                        return _Next(record.offset, bytes(record.body), times - {None})
        except ShoalError as error:
            return error
        return None

    def proof(offset: GroupOffset) -> OffsetProof | None:
        if offset.counterpart is None or offset.translated is None:
            return None
        here, there = (offset.partition, offset.committed), (offset.counterpart, offset.translated)
        at_source, at_destination = (here, there) if direction is Direction.FORWARD else (there, here)
        found = None
        # A mirror writes no aborted records. But where producers have run at the destination, before a cut,
        # there are theirs, which no record at the source equals.
        for level in dict.fromkeys((IsolationLevel.READ_UNCOMMITTED, own)):
            both = next_record(source, own, *at_source), next_record(destination, level, *at_destination)
            ours, theirs = both if direction is Direction.FORWARD else both[::-1]
            again = _compared(ours, theirs, offset.exactness)
            if again.is_same:
                return again
            found = found or again
        return found

    return proof


def _compared(
    ours: _Next | ShoalError | None, theirs: _Next | ShoalError | None, exactness: Exactness | None
) -> OffsetProof:
    for each in (ours, theirs):
        if isinstance(each, ShoalError):
            return OffsetProof(None, f"a record cannot be read: {each}")
    if isinstance(ours, _Next) and isinstance(theirs, _Next):
        found = f"the next records are those of offsets {ours.offset} and {theirs.offset}"
        if ours.body == theirs.body and ours.times & theirs.times:
            return OffsetProof(True, found)
        if exactness is Exactness.EXACT:
            return OffsetProof(False, found)
        return OffsetProof(None, f"{found}: records may be read twice")
    if ours is theirs:
        return OffsetProof(True, "no record follows at either cluster")
    if exactness is Exactness.AHEAD or theirs is None:
        return OffsetProof(None, "the next record is not mirrored yet")
    return OffsetProof(exactness is not Exactness.EXACT or None, "the next record is at one cluster only")
