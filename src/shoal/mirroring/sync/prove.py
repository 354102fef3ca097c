"""Prove translations: read the record that a consumer reads next, at both clusters, and compare."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import closing
from dataclasses import dataclass

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.scan import read_decided
from ...errors import ShoalError
from ...records import Record
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.offset_map import Exactness
from .report import Direction, GroupOffset, OffsetProof

__all__ = ["proofs"]

_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Next:
    """
    The next record that a consumer reads from an offset on; None at the end of the log.

    Attributes:
        times: Its timestamps: the create time, and the append time, which ``--keep-append-time`` keeps.

    """

    record: Record | None
    times: Set[int] = frozenset()


class _Prover:
    def __init__(self, source: Cluster, destination: Cluster, settings: CopySettings) -> None:
        self._clusters = {"source": source, "destination": destination}
        self._settings = settings
        self._read: dict[tuple[str, IsolationLevel, TopicPartition, int], _Next | ShoalError] = {}

    def proof(self, offset: GroupOffset, direction: Direction) -> OffsetProof | None:
        """Return the comparison for an offset; None if it has no translation."""
        if offset.counterpart is None or offset.translated is None:
            return None
        # A mirror writes no aborted records. But where producers have run at the destination, before a cut,
        # there are theirs, which no record at the source equals.
        own = self._settings.source.isolation_level
        found = self._proof(offset, direction, own, IsolationLevel.READ_UNCOMMITTED)
        if found.is_same or own is IsolationLevel.READ_UNCOMMITTED:
            return found
        committed = self._proof(offset, direction, own, own)
        return committed if committed.is_same else found

    def _proof(
        self, offset: GroupOffset, direction: Direction, source: IsolationLevel, destination: IsolationLevel
    ) -> OffsetProof:
        assert offset.counterpart is not None
        assert offset.translated is not None
        sides = (("source", source), ("destination", destination))
        here, there = sides if direction is Direction.FORWARD else sides[::-1]
        ours = self._next(*here, offset.partition, offset.committed)
        theirs = self._next(*there, offset.counterpart, offset.translated)
        for answer in (ours, theirs):
            if isinstance(answer, ShoalError):
                return OffsetProof(None, f"a record cannot be read: {answer}")
        assert isinstance(ours, _Next)
        assert isinstance(theirs, _Next)
        return _compared(ours, theirs, offset.exactness)

    def _next(
        self, side: str, level: IsolationLevel, partition: TopicPartition, offset: int
    ) -> _Next | ShoalError:
        key = (side, level, partition, offset)
        if key not in self._read:
            try:
                self._read[key] = self._read_next(*key)
            except ShoalError as error:
                self._read[key] = error
        return self._read[key]

    def _read_next(self, side: str, level: IsolationLevel, partition: TopicPartition, offset: int) -> _Next:
        cluster = self._clusters[side]
        with closing(read_decided(cluster, partition, offset, level, _BUFFER_BYTES)) as batches:
            for decision, batch in batches:
                if decision.is_drop:
                    continue
                for record in self._settings.records_to_mirror(batch, offset):
                    append_time = batch.header.append_time
                    return _Next(record, {record.timestamp} | ({append_time} if append_time else set()))
        return _Next(None)


def _compared(our_next: _Next, their_next: _Next, exactness: Exactness | None) -> OffsetProof:
    ours, theirs = our_next.record, their_next.record
    if ours is None and theirs is None:
        return OffsetProof(True, "no record follows at either cluster")
    if ours is None or theirs is None:
        if exactness is Exactness.AHEAD or theirs is None:
            return OffsetProof(None, "the next record is not mirrored yet")
        return OffsetProof(exactness is not Exactness.EXACT or None, "the next record is at one cluster only")
    is_same = bytes(ours.body) == bytes(theirs.body) and bool(our_next.times & their_next.times)
    found = f"the next records are those of offsets {ours.offset} and {theirs.offset}"
    if is_same:
        return OffsetProof(True, found)
    if exactness is Exactness.EXACT:
        return OffsetProof(False, found)
    return OffsetProof(None, f"{found}: records may be read twice")


def proofs(
    source: Cluster, destination: Cluster, settings: CopySettings, direction: Direction
) -> Callable[[GroupOffset], OffsetProof | None]:
    """
    Return a function that proves one translation.

    Args:
        source: The source cluster of the mirror, with metadata of its topics by the first proof.
        destination: Its destination cluster, with metadata of the copies by the first proof.
        settings: The mirror's settings, which decide which records it copies.
        direction: From which cluster the offsets were read.

    """
    prover = _Prover(source, destination, settings)
    return lambda offset: prover.proof(offset, direction)
