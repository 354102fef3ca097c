"""
How many records our writer wrote behind a position, among those of other programs.

Its sequences count them, also those that the destination has deleted since, by retention or compaction. The
first of its batches that is left shows how many came before it. If none is left, the leader may remember
the writer's last sequence.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ....client.offsets import log_end_offsets
from ....client.producers import last_sequence
from ....error_codes import ErrorCode
from ....errors import BrokerError
from ....records import BatchHeader, RecordBatch
from ...model.position import SEQUENCES, MirrorPosition
from .places import Places, Undecided, WrittenRun
from .tail import Tail, is_by
from .written import WrittenBatch

__all__ = ["OwnRecords", "own_records"]


class OwnRecords(NamedTuple):
    """
    Our writer's records behind a position.

    Attributes:
        run: Their offsets, each once.
        next_sequence: The only one that a broker takes next, if it knows the writer.

    """

    run: WrittenRun
    next_sequence: int


def own_records(places: Places, position: MirrorPosition) -> OwnRecords:
    """
    Count the records that a position's writer wrote behind it.

    Raises:
        Undecided: The destination deleted some, and nothing shows which program wrote them.

    """
    count = _Count.none_behind(position)
    tail: Tail | None = None
    tail_index = 0
    for count, batch, follows in _walk(places, position):
        if follows:
            tail = Tail.of(batch, places.logs.settings)
            tail_index = count.written - _size(batch.header)
    deleted = count.deleted + places.logs.log.end - count.end
    written, next_sequence = count.written, count.next_sequence
    if tail is None and deleted:
        written = tail_index = _remembered(places, position, deleted)
        next_sequence = (count.expected + written) % SEQUENCES
    return OwnRecords(
        WrittenRun(written, tail, tail_index, lambda: _batches(places, position)), next_sequence
    )


def _remembered(places: Places, position: MirrorPosition, deleted: int) -> int:
    """Return how many of the deleted records are our writer's, by the leader's memory of it."""
    destination, partition = places.logs.clusters.destination, places.logs.copy.destination
    last: int | None = None
    try:
        last = last_sequence(destination, partition, position.identity.producer_id)
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
    # In this order: a late request that arrives in between would count as deleted.
    if log_end_offsets(destination, [partition])[partition] != places.logs.log.end:
        raise places.logs.changed()
    if last is not None:
        written = (last + 1 - position.identity.sequence(position.destination_offset)) % SEQUENCES
        if written <= deleted:
            return written
    raise Undecided("nothing shows which program wrote them")


def _batches(places: Places, position: MirrorPosition) -> Generator[WrittenBatch]:
    """Yield our writer's batches behind a position, each once."""
    for count, batch, follows in _walk(places, position):
        if follows:
            yield WrittenBatch(count.written - _size(batch.header), batch, is_ours=True)


def _walk(places: Places, position: MirrorPosition) -> Generator[tuple[_Count, RecordBatch, bool]]:
    """Yield all batches behind a position: the count behind each, and whether it is the next of ours."""
    count = _Count.none_behind(position)
    for batch in places.destination_batches(position.destination_offset):
        is_ours = is_by(batch.header, position.identity)
        count, follows = count.behind(batch.header, is_ours=is_ours)
        yield count, batch, follows


def _size(header: BatchHeader) -> int:
    return header.last_offset_delta + 1


class _Count(NamedTuple):
    """
    The records of our writer up to a batch.

    Attributes:
        written: The number of their offsets, without a double.
        next_sequence: The one behind the last batch of ours.
        expected: The one behind the last that is no double.
        end: The destination offset behind the last batch.
        deleted: The number of offsets before it that have no batch, less our own.

    """

    written: int
    next_sequence: int
    expected: int
    end: int
    deleted: int = 0

    @classmethod
    def none_behind(cls, position: MirrorPosition) -> _Count:
        """Return the count at a position, behind which nothing was read yet."""
        sequence = position.identity.sequence(position.destination_offset)
        return cls(0, sequence, sequence, position.destination_offset)

    def behind(self, header: BatchHeader, *, is_ours: bool) -> tuple[_Count, bool]:
        """Go on behind a batch; return whether it is ours, and no double."""
        deleted = self.deleted + max(0, header.base_offset - self.end)
        count = self._replace(end=header.next_offset, deleted=deleted)
        if not is_ours:
            return count, False
        next_sequence = (header.base_sequence + _size(header)) % SEQUENCES
        count = count._replace(next_sequence=next_sequence)
        # A broker that knows the writer takes no sequence before its turn: those in between are deleted.
        skipped = (header.base_sequence - self.expected) % SEQUENCES
        if skipped > deleted:
            # A late request of a dead process, to a broker that had forgotten the writer: a double.
            return count, False
        written = self.written + skipped + _size(header)
        return count._replace(written=written, expected=next_sequence, deleted=deleted - skipped), True
