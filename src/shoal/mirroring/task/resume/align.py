"""
Align the partitions of a task with their destinations: from a map that is known to the position now.

An alignment asks in few requests, each for all partitions of a leader: the group's maps, both logs' ends and
starts, the last batches of the copies, then the epochs of the source's logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ....client.cluster import Cluster
from ....client.offsets import EARLIEST, LATEST, epoch_end_offsets, list_offsets, log_end_offsets
from ....client.scan import read_one_batch_each
from ....error_codes import ErrorCode
from ....errors import BrokerError, ShoalError
from ....topic_partition import TopicPartition
from ...model.copy_options import CopySettings
from ...model.position import MirrorPosition, is_another_topic
from ...other_groups import OtherGroups, topic_id
from ..committer import Commits
from ..partition import PartitionCopy
from ..progress import count_runs
from .adopt import Watch, adopt, is_to_adopt
from .begin import begin, new_identity
from .copy_incidents import at_destination
from .incidents import continued
from .logs import PRESENT_EPOCH, Clusters, PartitionLogs
from .source_incidents import at_source, end_before_range

__all__ = ["resume_partitions", "still_aligned"]

T = TypeVar("T")


def resume_partitions(
    copies: Sequence[PartitionCopy],
    source: Cluster,
    destination: Cluster,
    commits: Commits,
    settings: CopySettings,
    watch: Watch,
) -> dict[TopicPartition, ShoalError]:
    """
    Align each partition with its destination. Nothing may be in flight, and both metadata are fresh.

    A partition resumes by the map that this process committed last, or else by the group's. A partition
    without a position begins. A first position, and one that an incident has moved, is committed before this
    returns, and the incident is reported before that. A copy that is to be taken over is compared only if its
    partition may be slow: the others are left as they are, and will be.

    Args:
        commits: Reads the group's positions, and commits them; no other commit is under way.
        watch: Receives the progress of a long comparison, and ends it.

    Returns:
        For each source partition that could not be aligned, why:
        :class:`~shoal.errors.PartitionStopped`, or an error that time can heal.

    """
    return _Alignment(Clusters(source, destination, settings), commits, watch).run(copies)


class _Found(NamedTuple):
    """
    The place where a partition continues.

    Attributes:
        position: Its position.
        followed: The map that led to the end of the copy; None after an incident.
        range_end: The end of its range, if the source has another log by now; else None.

    """

    position: MirrorPosition
    followed: MirrorPosition | None = None
    range_end: int | None = None


class _Alignment:
    """One alignment of some partitions."""

    def __init__(self, clusters: Clusters, commits: Commits, watch: Watch) -> None:
        self._clusters = clusters
        self._settings = clusters.settings
        self._commits = commits
        self._watch = watch
        self._errors: dict[TopicPartition, ShoalError] = {}

    def run(self, copies: Sequence[PartitionCopy]) -> dict[TopicPartition, ShoalError]:
        # The positions first: an orphan may still commit, and a position ahead of its log looks like a lost
        # tail.
        known, consumed = self._known_maps(copies)
        asked = self._ask(copies)
        to_adopt = [
            copy
            for copy, ends in asked.items()
            if copy.source not in known and is_to_adopt(self._settings, ends)
        ]
        logs = self._read({copy: ends for copy, ends in asked.items() if copy not in to_adopt})
        begun: dict[PartitionCopy, _Found] = {}
        looked_up: dict[PartitionCopy, _Found] = {}
        for copy, each in logs.items():
            with self._keeping_errors(copy):
                if copy.source in known:
                    looked_up[copy] = self._look_up(each, known[copy.source])
                else:
                    begun[copy] = _Found(begin(each, consumed.get(copy.source)))
        found = begun | self._check_sources(logs, looked_up)
        for copy, position in self._committed({copy: each.position for copy, each in found.items()}).items():
            _, followed, range_end = found[copy]
            if followed is not None:
                # Their acknowledgements were lost.
                uncounted = max(followed.destination_offset, copy.landed_offset)
                count_runs(followed, uncounted, logs[copy].end, copy.counters)
            copy.end_at(range_end)
            copy.align(position)
        for copy in to_adopt:
            if copy.is_slow:
                self._adopt(copy)
            else:
                copy.is_slow = True
                copy.lose_track()
        return self._errors

    def _known_maps(
        self, copies: Sequence[PartitionCopy]
    ) -> tuple[dict[TopicPartition, MirrorPosition], Mapping[TopicPartition, int]]:
        """Return the map that each partition begins with, and the offsets of consumers that count as such."""
        if self._settings.allows_other_writers:
            # Acknowledged records are not sent again.
            known = {copy.source: copy.position for copy in copies if copy.position}
        else:
            known = {copy.source: copy.progress.committed for copy in copies if copy.progress.committed}
        read = self._commits.read_state([copy.source for copy in copies if copy.source not in known])
        return {**known, **read.positions}, read.others if self._settings.takes_over_offsets else {}

    def _ask(self, copies: Sequence[PartitionCopy]) -> dict[PartitionCopy, PartitionLogs]:
        """Ask where the logs begin and end, but no leader that has not answered before."""
        here, there = self._clusters.destination, self._clusters.source

        def of_copies(timestamp: int, copies: Iterable[PartitionCopy]) -> dict[PartitionCopy, int]:
            answers = list_offsets(here, {copy.destination: timestamp for copy in copies})
            return self._sound({copy: answers[copy.destination] for copy in copies})

        ends = log_end_offsets(here, [copy.destination for copy in copies])
        end = self._sound({copy: ends[copy.destination] for copy in copies})
        latest = of_copies(LATEST, end)
        start = of_copies(EARLIEST, latest)
        begins = list_offsets(there, {copy.source: EARLIEST for copy in start})
        source_start = self._sound({copy: begins[copy.source] for copy in start})
        closed = {copy.source: PRESENT_EPOCH for copy in source_start if not copy.range.is_open}
        source_ends = epoch_end_offsets(there, closed)
        source_end = self._sound({copy: source_ends.get(copy.source) for copy in source_start})
        logs: dict[PartitionCopy, PartitionLogs] = {}
        for copy in source_end:
            if latest[copy] < end[copy]:
                # An election could still take back what lies between the two.
                where = f"{copy.destination} on {here}: high watermark {latest[copy]}, log end {end[copy]}"
                self._errors[copy.source] = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, where)
                continue
            logs[copy] = PartitionLogs(
                self._clusters, copy, start[copy], end[copy], source_start[copy], source_end[copy]
            )
        return logs

    def _read(self, asked: Mapping[PartitionCopy, PartitionLogs]) -> dict[PartitionCopy, PartitionLogs]:
        """Read the last batches of the copies, as far as they are small; of none that others may write to."""
        if self._settings.allows_other_writers:
            return dict(asked)
        ends = {copy.destination: logs.end - 1 for copy, logs in asked.items() if logs.start < logs.end}
        found = read_one_batch_each(self._clusters.destination, ends)
        read = self._sound({copy: found.get(copy.destination) for copy in asked})
        return {copy: replace(asked[copy], read=batch and batch.header) for copy, batch in read.items()}

    def _sound(self, answers: Mapping[PartitionCopy, T | ShoalError]) -> dict[PartitionCopy, T]:
        """Return the answers, and keep those that are errors."""
        self._errors |= {
            copy.source: answer for copy, answer in answers.items() if isinstance(answer, ShoalError)
        }
        return {copy: answer for copy, answer in answers.items() if not isinstance(answer, ShoalError)}

    @contextmanager
    def _keeping_errors(self, copy: PartitionCopy) -> Iterator[None]:
        try:
            yield
        except ShoalError as error:
            self._errors[copy.source] = error

    def _look_up(self, logs: PartitionLogs, known: MirrorPosition) -> _Found:
        """Return the position at the end of the copy's log, by a known map."""
        copy, position, end = logs.copy, logs.copy.position, logs.end
        if copy.progress.committed is not None and position and position.destination_offset == end:
            # Nothing was in flight: the position may have passed what was dropped since the commit.
            known = position
        if (incident := at_destination(logs, known)) is not None:
            return _Found(incident.meet(logs, known.source_offset).position)
        if logs.may_have_other_writers(known):
            # Whatever was written after the position is written again, by another: nothing to look up.
            base = end if self._settings.allows_other_writers else 0
            identity, epoch = new_identity(self._clusters, base), known.source_leader_epoch
            anew = continued(logs, known, known.source_offset, identity=identity, source_leader_epoch=epoch)
            return _Found(anew)
        return _Found(known.at(end), known)

    def _check_sources(
        self, logs: Mapping[PartitionCopy, PartitionLogs], looked_up: Mapping[PartitionCopy, _Found]
    ) -> dict[PartitionCopy, _Found]:
        """Check that the source's logs are those that were copied; return where partitions go on."""
        source = self._clusters.source
        epochs = {copy.source: found.position.source_leader_epoch for copy, found in looked_up.items()}
        ends = epoch_end_offsets(source, epochs)
        # Logs of magic 0 and 1 keep no epochs. Their high watermark may lag behind what was mirrored, so it
        # is believed only where the leader refused our offset as well.
        doubted = [copy.source for copy in looked_up if copy.out_of_range and ends[copy.source] is None]
        ends |= list_offsets(source, dict.fromkeys(doubted, LATEST))
        same_up_to = self._sound({copy: ends[copy.source] for copy in looked_up})
        checked: dict[PartitionCopy, _Found] = {}
        for copy, end in same_up_to.items():
            with self._keeping_errors(copy):
                found = self._check_source(logs[copy], looked_up[copy], end)
                checked[copy] = found._replace(position=self._completed(copy, found.position))
        return checked

    def _check_source(self, logs: PartitionLogs, found: _Found, same_up_to: int | None) -> _Found:
        """Meet what the source has lost: the log that was mirrored, then offsets that were not yet."""
        while (incident := at_source(logs, found.position, same_up_to)) is not None:
            position, _, range_end = incident.meet(logs, found.position.source_offset)
            found, same_up_to = _Found(position, None, range_end or found.range_end), None
        if found.range_end is None and (incident := end_before_range(logs, found.position)) is not None:
            range_end = incident.meet(logs, found.position.source_offset).range_end
            return found._replace(range_end=range_end)
        return found

    def _completed(self, copy: PartitionCopy, position: MirrorPosition) -> MirrorPosition:
        # The pair of clusters may have had no topic ids, and may have been upgraded since.
        source, destination, settings = self._clusters.source, self._clusters.destination, self._settings
        position = copy.skip(position)
        offsets, before = position.offsets, position.before_cut
        if position.rules != settings.rules:
            # No count of another isolation level is trusted.
            offsets, before = offsets.counted_otherwise(), before and before.counted_otherwise()
        return replace(
            position,
            milestones=offsets,
            before_cut=before,
            source_topic_id=position.source_topic_id or topic_id(source, copy.source),
            destination_topic_id=position.destination_topic_id or topic_id(destination, copy.destination),
            rules=settings.rules,
            first_start=settings.first_start or position.first_start,
            is_plain=settings.allows_other_writers,
        )

    def _committed(
        self, positions: Mapping[PartitionCopy, MirrorPosition]
    ) -> dict[PartitionCopy, MirrorPosition]:
        """
        Commit the positions that do not follow from a map of this process; return those to go on from.

        A map that was only read may not be the newest one in the coordinator's log: the append of another may
        have failed on a follower, and be read after the coordinator has moved.
        """
        to_commit = {
            copy: position
            for copy, position in positions.items()
            if copy.progress.committed is None or copy.counters.incidents
        }
        if any(copy.counters.incidents for copy in to_commit):
            # Reported first: if the process dies in between, the next one reports them again, rather than
            # none.
            self._watch.report_now()
        if to_commit:
            self._errors.update(self._commits.commit_aligned(to_commit))
        return {copy: each for copy, each in positions.items() if copy.source not in self._errors}

    def _adopt(self, copy: PartitionCopy) -> None:
        """Take one copy over and commit its position."""
        clusters = self._clusters
        others = OtherGroups(
            clusters.source, clusters.destination, self._settings.group, {copy.source: copy.destination}
        )
        # Asked again: to compare the copies before this one may have taken hours.
        for logs in self._ask([copy]).values():
            adopted: dict[PartitionCopy, MirrorPosition] = {}
            with self._keeping_errors(copy):
                adopted[copy] = adopt(logs, others, self._watch)
            for aligned in self._committed(adopted).values():
                copy.align(aligned)
                copy.state.waiting_for = None


def still_aligned(copy: PartitionCopy, source: Cluster, destination: Cluster) -> bool:
    """
    Return whether both topics, and the source's leader epoch, are those that a copy is aligned with.

    Raises:
        BrokerError: A partition has no leader, or its topic does not exist.

    """
    assert copy.position is not None, "it is aligned"
    return (
        copy.progress.source_leader_epoch == source.partition(copy.source).leader_epoch
        and not is_another_topic(copy.position.source_topic_id, topic_id(source, copy.source))
        and not is_another_topic(copy.position.destination_topic_id, topic_id(destination, copy.destination))
    )
