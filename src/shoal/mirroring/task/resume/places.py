"""The place in the source behind records that the mirror wrote, even if the source lost some since."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ....client.admin import describe_topic_configs
from ....error_codes import ErrorCode
from ....errors import BrokerError, ShoalError
from ....records import RecordBatch
from ...model.position import MirrorPosition
from .follow import follow
from .logs import PartitionLogs, SourceLog, source_end
from .search import SourcePlace
from .survivors import Survivors
from .tail import Tail, is_by, is_ours
from .written import OutOfSight, WrittenBatch

__all__ = ["Places", "Undecided", "WrittenRun", "retention_is_faster"]


class Undecided(ShoalError):
    """Several places are possible, and a wrong one loses or doubles records; the text names them."""


class WrittenRun(NamedTuple):
    """
    The records written past a position.

    Attributes:
        size: The number of records.
        tail: The last batch of them that the destination still has; None if it deleted all.
        tail_index: The number of the record that its first offset stands for.
        batches: Begins to read all of them.

    """

    size: int
    tail: Tail | None
    tail_index: int
    batches: Callable[[], Generator[WrittenBatch]]


@dataclass(frozen=True)
class Places:
    """
    The places of one partition.

    Attributes:
        logs: Both logs of the partition.
        source: Its log at the source: the start, and the offset up to which it was mirrored as it is.

    """

    logs: PartitionLogs
    source: SourceLog

    # The destination

    def run_behind(self, position: MirrorPosition, tail: Tail, end_offset: int) -> WrittenRun:
        """Return all that the destination has from a position to an offset; ``tail`` is its last batch."""
        tail_index = tail.header.base_offset - position.destination_offset
        batches = partial(self._batches_behind, position, end_offset)
        return WrittenRun(end_offset - position.destination_offset, tail, tail_index, batches)

    def _batches_behind(self, position: MirrorPosition, end_offset: int) -> Generator[WrittenBatch]:
        for batch in self.destination_batches(position.destination_offset):
            if batch.header.base_offset >= end_offset:
                return
            number = batch.header.base_offset - position.destination_offset
            yield WrittenBatch(number, batch, is_ours(batch.header, position.identity))

    def destination_batches(self, offset: int) -> Iterator[RecordBatch]:
        """Yield the destination's batches from an offset on, up to the end of its log."""
        log = self.logs.log
        for batch in self.logs.destination_batches(max(offset, log.start)):
            if batch.header.base_offset >= log.end:
                return
            yield batch

    # The source

    def behind(self, position: MirrorPosition, run: WrittenRun) -> SourcePlace | None:
        """
        Return the place behind the records that were written past a position; None if there is none.

        Raises:
            Undecided: Several places are possible.

        """
        tail, landed = run.tail, position.destination_offset + run.tail_index
        identity = position.identity
        if tail and is_by(tail.header, identity) and tail.header.base_sequence != identity.sequence(landed):
            # A late request of a dead process may have left the right records at a wrong offset, if
            # the broker had forgotten the writer. The sequence shows it.
            return None
        with retention_is_faster():
            if tail and self.source.start <= position.source_offset:
                place = follow(self.logs, position, run.size, tail, run.tail_index)
                if place:
                    return place
            # The source may have changed since, by compaction or retention: then their number says nothing.
            return self._among_survivors(position, run)

    def _among_survivors(self, position: MirrorPosition, run: WrittenRun) -> SourcePlace | None:
        """Compare all written records with the source's remaining ones."""
        survivors = Survivors(
            self.logs,
            position.source_offset,
            self.source.start,
            source_end(self.logs.clusters, self.logs.copy.source),
            run.batches,
            run.size,
        )
        try:
            return self._only_place(survivors)
        except OutOfSight:
            raise Undecided(
                "the source lost so many records since that there is too much to compare"
            ) from None

    def _only_place(self, survivors: Survivors) -> SourcePlace | None:
        only_deletes = self.source_only_deletes()
        if only_deletes and self.source.start <= survivors.source_offset:
            place = survivors.merge(is_unchanged=True).last_place
            if place:
                return place
            # The topic was compacted until lately.
        merge = survivors.merge(is_unchanged=False)
        first, last = merge.first, merge.last
        if first is None or last is None:
            return None
        is_certain = first.survivors == last.survivors
        if is_certain or survivors.are_written(first, last, is_compacted=not only_deletes):
            return merge.last_place
        raise Undecided(
            "the source lost records since, and nothing shows whether to resume at offset "
            f"{first.source_offset} or as late as {last.source_offset}"
        )

    def source_only_deletes(self) -> bool:
        """Whether the source never changes a batch, so that a missing one was deleted whole."""
        topic = self.logs.copy.source.topic
        try:
            configs = describe_topic_configs(self.logs.clusters.source, [topic])
        except BrokerError as error:
            if error.retriable:
                raise
            return False  # not authorized to describe it: it may be compacted
        policy = configs[topic].get("cleanup.policy")
        return policy is not None and policy.value == "delete"


@contextmanager
def retention_is_faster() -> Iterator[None]:
    """Make an offset out of range retriable: the source deletes records while they are read."""
    try:
        yield
    except BrokerError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        # The next attempt asks for the log's start again.
        raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, error.where, error.detail) from error
