"""
One partition in a task: its position between the two clusters, and what moves, holds up or stops it.

Three parts have modules of their own. ``intake`` decides about fetched batches. ``progress`` stamps those
that go out, and knows what has landed, and ``partition_state`` has the states. The bytes stay in the fetch
buffer, so before the buffer is used again everything queued is acknowledged or forgotten.

Two offsets of the source only move forward between two alignments. Everything before
``position.source_offset`` is at the destination, and everything before ``intake.fetch_offset`` is decided
about. The position moves past each acknowledged batch, and over dropped ones when nothing is in flight.
An alignment, and :meth:`PartitionCopy.refetch`, set the fetch offset back to the position's.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from ...client.cluster import is_transient
from ...client.config import IsolationLevel
from ...errors import CorruptBatch, PartitionStopped, ProtocolError, ShoalError, UnsupportedBatch
from ...protocol.fetch import FetchedPartition
from ..model.copy_options import CopySettings
from ..model.incidents import Incident, IncidentKind
from ..model.position import MirrorPosition, topic_id_of
from ..model.reports import Assigned, Counters
from .intake import Intake
from .join_memory import JoinMemory
from .partition_state import PartitionState, StateMachine
from .progress import Head, Progress
from .trouble import Trouble, Troubles

__all__ = ["PartitionCopy"]


class _Skipped(NamedTuple):
    """
    Batches that the destination refuses, and that the partition skips.

    Attributes:
        after: The position's source offset then; nothing between it and the batches has to be mirrored.
        reason: Why, as a sentence.

    """

    after: int
    refused: Head
    reason: str


class PartitionCopy:
    """
    One partition of a task.

    Attributes:
        range: The source offsets to copy.
        entry: The number of the document's entry by which the task has it.
        state: Its state; see :mod:`.partition_state`.
        intake: The batches on their way in, up to the next source offset to fetch.
        progress: The batches on their way out, the position, and the map.
        troubles: The offsets at which it does not get on.
        counters: The counts since it was taken.
        out_of_range: Whether the source refused the fetch offset since the last alignment.
        is_slow: Whether its next alignment may take long.
        seen_interruptions: The number of interruptions of the membership in the group before the alignment.
        commit_waits_for: The reason why the last commit failed; None if it did not.
        committed_offset: The source offset that this task committed last; None before the first commit.
        source_topic_id: The id of the source topic that the partition is aligned with; None if the cluster
            has no topic ids.
        destination_topic_id: The id of the topic that may be written to; None as for the source.
        source_is_gone: Whether the source topic was deleted, and the group's position with it.
        newest_ms: The newest timestamp of the batch that was acknowledged last, or an older one; None before
            the first, or if its header does not have one.
        source_end: The source's end offset in its last response; -1 before the first.
        held_back: The number of offsets that open transactions held back in the source's last response.
        reported: Everything that the last report had; empty if all of it is to be reported again.

    """

    def __init__(self, assigned: Assigned, settings: CopySettings) -> None:
        """Begin without a position, as a document has it."""
        self.range = copy_range = assigned.range
        self.entry = assigned.entry
        self._settings = settings
        self._accepted = assigned.accepted
        self.source = copy_range.source
        self.destination = copy_range.destination
        self.state = StateMachine(settings.timing)
        self.state.waiting_for = assigned.waiting_for
        self.progress = Progress(has_map=not settings.allows_other_writers)
        self.intake = Intake(settings, self.progress)
        self.troubles = Troubles(settings.timing)
        self.counters = Counters.begun()
        self.out_of_range = False
        self.is_slow = False
        self._doubted_log: tuple[int, int] | None = None
        self.seen_interruptions = 0
        self.commit_waits_for: str | None = None
        self.source_topic_id: uuid.UUID | None = None
        self.destination_topic_id: uuid.UUID | None = None
        self.source_is_gone = False
        self.committed_offset: int | None = None
        self.newest_ms: int | None = None
        self.held_back: int | None = None
        self.reported: tuple[object, ...] = ()
        self._skipped: _Skipped | None = None
        self._reported: list[Incident] = []
        self.source_end = -1

    # Where it stands

    @property
    def position(self) -> MirrorPosition | None:
        """The position up to which everything is acknowledged; None before the first alignment."""
        return self.progress.position

    @property
    def next_offset(self) -> int:
        """The first source offset that is not known to be mirrored."""
        return self.position.source_offset if self.position else self.range.start_offset

    @property
    def landed_offset(self) -> int:
        """The destination offset up to which acknowledgements are counted; -1 before the first alignment."""
        return self.position.destination_offset if self.position else -1

    @property
    def end_offset(self) -> int:
        """The range's end; of an open range, the source's end offset in its last response."""
        return max(self.next_offset, self.source_end) if self.range.is_open else self.range.end_offset

    @property
    def known_end_offset(self) -> int | None:
        """The same for reports: None for an open range before the source's first response."""
        return None if self.range.is_open and self.source_end < 0 else self.end_offset

    @property
    def waiting_for(self) -> str | None:
        """The last reason to wait since the partition moved, if there is anything left to copy."""
        has_all = self.state.is_aligned and self.next_offset >= self.end_offset
        return None if has_all else self.state.waiting_for

    @property
    def needs_data(self) -> bool:
        """Whether there is more to fetch."""
        return self.state.is_aligned and self.intake.fetch_offset < self.range.end_offset

    @property
    def sequence_is_offset(self) -> bool:
        """Whether a broker that compares sequences with offsets takes its batches."""
        return self.position is not None and self.position.identity.sequence_is_offset

    @property
    def is_silent(self) -> bool:
        """Whether the source's last answer for the fetch offset had no records."""
        return self.troubles.at(self.intake.fetch_offset, Trouble.SILENCE) is not None

    # Alignment

    def begin_alignment(self, interruptions: int, generation: int) -> None:
        """Begin to align; after an interruption by the group's map, since others may have written."""
        if interruptions != self.seen_interruptions:
            self.seen_interruptions = interruptions
            self.progress.committed = None
            self.progress.end_doubts(generation)
        self.state.become(PartitionState.ALIGNING)

    def align(self, position: MirrorPosition) -> None:
        """Go on from a position that the destination's log end confirms."""
        self.progress.position = position
        source_topic_id = topic_id_of(position.source_topic_id)
        if source_topic_id != self.source_topic_id:
            self.troubles.clear()
        self.source_topic_id = source_topic_id
        self.destination_topic_id = topic_id_of(position.destination_topic_id)
        self.out_of_range = self.is_slow = False
        self._doubted_log = None
        self._accepted = None  # later incidents stop the partition again
        self._reported.clear()  # and are reported again
        self.state.become(PartitionState.COPYING)
        self.intake.rewind()
        self._end_if_done()

    def is_log_as_doubted(self, log: tuple[int, int]) -> bool:
        """Keep the ends of a log that seemed to change; return whether they were the same last time."""
        is_same, self._doubted_log = self._doubted_log == log, log
        return is_same

    def end_at(self, offset: int | None) -> None:
        """Let the range end at another offset, if one is given, before the partition is aligned."""
        if offset is not None:
            self.range = self.range._replace(end_offset=offset)

    def end_without_source(self) -> None:
        """Let the range end at the position, since the source topic was deleted."""
        self.end_at(self.next_offset)
        self._end_if_done()

    def skip(self, position: MirrorPosition) -> MirrorPosition:
        """Move a position past the batches that the destination refused, if nothing has changed since."""
        skipped, self._skipped = self._skipped, None
        if skipped is None or skipped.after != position.source_offset:
            return position  # the mirror meets the refused batch again
        self.report_continued(IncidentKind.SEND_FAILURE, skipped.reason, skipped.refused.records_count)
        return position.moved(
            source_offset=skipped.refused.source_end,
            source_leader_epoch=skipped.refused.leader_epoch,
            plan=(),
        )

    # Fetched batches

    def update_end_offset(self, end_offset: int, high_watermark: int = -1) -> None:
        """
        Keep the end offset of the source's response.

        Args:
            end_offset: The last stable offset, or the high watermark, by the isolation level.
            high_watermark: Open transactions hold back the offsets between the two.

        """
        self.source_end = end_offset
        self.held_back = max(0, high_watermark - end_offset)

    def take(self, fetched: FetchedPartition, isolation_level: IsolationLevel, memory: JoinMemory) -> bool:
        """
        Queue what a response brings, up to its first slice.

        Args:
            memory: For joined batches; until nothing of them is in flight.

        Returns:
            Whether there was any whole batch.

        """
        self.counters.bytes_in += len(fetched.record_set)
        self.intake.receive(fetched, isolation_level, memory)
        return self.take_slice()

    def take_slice(self) -> bool:
        """
        Queue the next slice of a response; see :meth:`.Intake.take`.

        A batch that cannot be mirrored stops the partition. If others are queued before it, they are sent
        first: the next response begins with it.

        Returns:
            Whether there was any whole batch.

        """
        if not self.intake.has_rest or not self.needs_data:
            return False
        try:
            return self.intake.take(self.range.end_offset)
        except (CorruptBatch, UnsupportedBatch) as error:
            if not self.progress.has_queued:
                self._cannot_take(error)
            return True

    def _cannot_take(self, error: CorruptBatch | UnsupportedBatch) -> None:
        # Not the offset in its header: a wrapper of magic 0 or 1 has that of its last message.
        offset = self.intake.fetch_offset
        if isinstance(error, UnsupportedBatch):
            self._refuse(offset, str(error), can_heal=False)
        else:
            what = f"the source cluster sent the batch at offset {offset} damaged"
            self.suspect(offset, f"{what}: {error.reason}")

    def skip_unproved_gap(self, end_offset: int) -> None:
        """Go on at an offset, though no batch shows that the log has nothing before it; count the offsets."""
        self.intake.skip_gap(end_offset, self.progress.source_leader_epoch, unproved=True)
        self.settle()

    # Landed batches, which move the position

    def land(self, batches: int) -> None:
        """Take the first queued batches as landed at their offsets."""
        if not batches:
            return
        self.progress.land(batches, self.counters)
        self.newest_ms = self.progress.newest_ms
        self._have_moved()

    def _have_moved(self) -> None:
        """Count what was dropped before the position."""
        self.state.move()
        self.intake.count_dropped(self.next_offset, self.counters)

    def settle(self) -> None:
        """Bring the position up to date if nothing is left to send, before the next fetch is received."""
        if not self.state.is_aligned or self.progress.has_queued:
            return
        before = self.next_offset
        self.progress.pass_over(self.intake.fetch_offset, self.intake.source_leader_epoch)
        if self.next_offset > before:
            self._have_moved()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self.next_offset >= self.range.end_offset:
            self.state.become(PartitionState.DONE)

    # Back to the position, to fetch or send otherwise

    def refetch(self) -> None:
        """Forget the queue, and fetch again behind the last acknowledged batch."""
        if self.state.is_aligned:
            self.intake.rewind()
            self._end_if_done()

    def lose_track(self) -> None:
        """Treat the outcome of everything in flight as unknown: the partition has to be aligned."""
        self._forget_queue()
        self.state.become(PartitionState.WAITING)

    def _forget_queue(self) -> None:
        self.progress.lose_track()
        self.intake.forget()

    def skip_refused(self, refused: Head, reason: str) -> None:
        """Go on behind batches that the destination refuses, after the next alignment."""
        self._skipped = _Skipped(self.next_offset, refused, reason)
        self.wait(reason, 0)

    # Waiting and the stop

    def wait(self, reason: str, delay_s: float | None = None) -> None:
        """Lose track, and align after a while (by default longer each time), for what time can heal."""
        self.counters.retries += 1
        self._forget_queue()
        self.state.wait(reason, delay_s)

    def suspect(self, offset: int, reason: str, *, patience_s: float | None = None) -> None:
        """
        Try the batch at an offset once more, since it is damaged, or refused as if it were; then stop.

        Args:
            offset: The batch's source offset.
            reason: The refusal, as a sentence.
            patience_s: How long to try again before the partition stops, if the refusal names no cause. None:
                it names one, and has a second try alone.

        """
        trouble = Trouble.EXPLAINED if patience_s is None else Trouble.UNEXPLAINED
        spell = self.troubles.meet(offset, trouble)
        if spell.times == 1:
            self.wait(f"a second try: {reason}")
        elif patience_s is not None and spell.lasted_s < patience_s:
            self.wait(f"a further try: {reason}")
        else:
            tries = "a second try" if spell.times == 2 else f"{spell.times - 1} more tries"
            self._refuse(offset, f"{reason}, and {tries} ended the same")

    def fail(self, error: ShoalError, offset: int) -> None:
        """Wait if time can heal an error, try a damaged batch once more, else stop."""
        if isinstance(error, PartitionStopped):
            self.stop_with(error)
        elif is_transient(error):
            self.wait(str(error))
        elif isinstance(error, CorruptBatch | ProtocolError):
            self.suspect(offset, str(error))
        else:
            self.stop(str(error))

    def _refuse(self, offset: int, reason: str, *, can_heal: bool = True) -> None:
        """Stop at an offset; everything before it is acknowledged."""
        self.settle()
        self.stop_with(PartitionStopped(*self.source, offset, reason, can_heal=can_heal))

    def stop(self, reason: str) -> None:
        """Stop this partition, with a sentence; the others as of :class:`PartitionStopped`."""
        self.stop_with(PartitionStopped(*self.source, self.next_offset, reason))

    def stop_with(self, error: PartitionStopped) -> None:
        """Stop this partition for an error."""
        if isinstance(error.cause, IncidentKind):
            self.counters.incidents.append(Incident(error.cause, error.reason))
        self._forget_queue()
        self.state.stop(error)

    # Incidents

    def meet(
        self,
        kind: IncidentKind,
        reason: str,
        advice: str,
        *,
        offset: int | None = None,
        unmirrored_from: int | None = None,
    ) -> None:
        """
        Meet an incident; if this returns, the partition continues, and then reports it.

        Args:
            kind: Its kind, which has a policy. An operator may have accepted one incident of it.
            reason: The finding, as a sentence without its full stop.
            advice: The remedy if the partition stops.
            offset: The source offset at which the partition stops; None: its position's.
            unmirrored_from: If the partition stops: the first source offset whose record is missing at the
                destination. None: ``offset``.

        Raises:
            PartitionStopped: The policy is to stop.

        """
        if kind is not self._accepted and not self._settings.continues_after(kind):
            where = *self.source, self.next_offset if offset is None else offset
            sentence = f"{reason}. {advice}"
            raise PartitionStopped(*where, sentence, unmirrored_from, can_heal=False, cause=kind)

    def report_continued(self, kind: IncidentKind, reason: str, lost: int | None = 0) -> None:
        """Report an incident after which the partition continues, once until it is aligned; see Incident."""
        incident = Incident(kind, reason, lost, continued=True)
        # An alignment meets those again that the one before reported, but could not commit a position behind.
        if incident not in self._reported:
            self._reported.append(incident)
            self.counters.incidents.append(incident)

    # Commits

    def keep_commit(self, position: MirrorPosition) -> None:
        """Keep the map that was committed."""
        self.progress.committed = position
        self.committed_offset = position.source_offset
        self.commit_waits_for = None

    def lose_source(self) -> None:
        """Commit the position no more: the source topic was deleted, and the group's position with it."""
        self.source_is_gone = True
        self.commit_waits_for = None
