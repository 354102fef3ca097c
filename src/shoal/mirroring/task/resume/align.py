"""
Align the partitions of a task with their destinations: from a map that is known to the position now.

An alignment asks in few requests, each for all partitions of a leader: the group's maps, both logs' ends and
starts, the last batches of the copies, then the epochs of the source's logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from ....client.cluster import Cluster
from ....client.offsets import LATEST, epoch_end_offsets, list_offsets
from ....errors import ShoalError
from ....topic_partition import TopicPartition
from ...model.copy_options import CopySettings, all_copy_rules
from ...model.position import MirrorPosition, is_another_topic
from ...other_groups import OtherGroups, topic_id
from ..committer import Commits
from ..partition import PartitionCopy
from ..progress import count_runs
from .adopt import Watch, adopt, is_to_adopt
from .begin import begin, new_identity
from .copy_incidents import at_destination
from .incidents import continued
from .logs import Clusters, Log, PartitionLogs, SourceLog, destination_logs, last_batches, source_logs
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


class _Alignment:
    """One alignment of some partitions."""

    def __init__(self, clusters: Clusters, commits: Commits, watch: Watch) -> None:
        self._clusters = clusters
        self._settings = clusters.settings
        self._commits = commits
        self._watch = watch
        self._errors: dict[TopicPartition, ShoalError] = {}
        #: The maps that led to the ends of copies; not of partitions that met an incident.
        self._followed: dict[PartitionCopy, MirrorPosition] = {}
        #: The ends of ranges whose source has another log by now.
        self._range_ends: dict[PartitionCopy, int | None] = {}

    def run(self, copies: Sequence[PartitionCopy]) -> dict[TopicPartition, ShoalError]:
        # The positions first: an orphan may still commit, and a position ahead of its log looks like a lost
        # tail.
        known, consumed = self._known_maps(copies)
        asked = self._ask(copies)
        to_adopt = [
            copy
            for copy, (log, _) in asked.items()
            if copy.source not in known and is_to_adopt(self._settings, log)
        ]
        logs = self._read({copy: ends for copy, ends in asked.items() if copy not in to_adopt})
        begun: dict[PartitionCopy, MirrorPosition] = {}
        looked_up: dict[PartitionCopy, MirrorPosition] = {}
        for copy, each in logs.items():
            with self._keeping_errors(copy):
                if copy.source in known:
                    looked_up[copy] = self._look_up(each, known[copy.source])
                else:
                    begun[copy] = begin(each, consumed.get(copy.source))
        positions = begun | self._check_sources(logs, looked_up)
        for copy, position in self._committed(positions).items():
            if (followed := self._followed.get(copy)) is not None:
                # Their acknowledgements were lost.
                uncounted = max(followed.destination_offset, copy.landed_offset)
                count_runs(followed, uncounted, logs[copy].log.end, copy.counters)
            copy.end_at(self._range_ends.get(copy))
            copy.align(position)
        for copy in to_adopt:
            if copy.is_slow:
                self._adopt(copy)
            else:
                copy.align_slowly()
        return self._errors

    def _known_maps(
        self, copies: Sequence[PartitionCopy]
    ) -> tuple[dict[TopicPartition, MirrorPosition], dict[TopicPartition, int]]:
        """Return the map that each partition begins with, and the offsets of consumers that count as such."""
        if self._settings.allows_other_writers:
            # Acknowledged records are not sent again.
            known = {copy.source: copy.position for copy in copies if copy.position}
        else:
            known = {copy.source: copy.progress.committed for copy in copies if copy.progress.committed}
        read, others = self._commits.read_all([copy.source for copy in copies if copy.source not in known])
        return known | read, others if self._settings.takes_over_offsets else {}

    def _ask(self, copies: Sequence[PartitionCopy]) -> dict[PartitionCopy, tuple[Log, SourceLog]]:
        here = destination_logs(self._clusters.destination, copies)
        logs = self._sound(copies, {copy: here[copy.destination] for copy in copies})
        there = source_logs(self._clusters.source, list(logs))
        found = self._sound(logs, {copy: there[copy.source] for copy in logs})
        return {copy: (logs[copy], log) for copy, log in found.items()}

    def _read(
        self, asked: Mapping[PartitionCopy, tuple[Log, SourceLog]]
    ) -> dict[PartitionCopy, PartitionLogs]:
        """Read the last batches of the copies; of none that others may write to."""
        ends = {copy.destination: log for copy, (log, _) in asked.items()}
        last = {} if self._settings.allows_other_writers else last_batches(self._clusters.destination, ends)
        read = self._sound(asked, {copy: last.get(copy.destination) for copy in asked})
        return {copy: PartitionLogs(self._clusters, copy, *asked[copy], read[copy]) for copy in read}

    def _sound(
        self, copies: Iterable[PartitionCopy], answers: Mapping[PartitionCopy, T | ShoalError]
    ) -> dict[PartitionCopy, T]:
        """Return the answers, and keep those that are errors."""
        sound: dict[PartitionCopy, T] = {}
        for copy in copies:
            answer = answers[copy]
            if isinstance(answer, ShoalError):
                self._errors[copy.source] = answer
            else:
                sound[copy] = answer
        return sound

    @contextmanager
    def _keeping_errors(self, copy: PartitionCopy) -> Iterator[None]:
        try:
            yield
        except ShoalError as error:
            self._errors[copy.source] = error

    def _look_up(self, logs: PartitionLogs, known: MirrorPosition) -> MirrorPosition:
        """Return the position at the end of the copy's log, by a known map."""
        copy, position, end = logs.copy, logs.copy.position, logs.log.end
        if copy.progress.committed is not None and position and position.destination_offset == end:
            # Nothing was in flight: the position may have passed what was dropped since the commit.
            known = position
        if (incident := at_destination(logs, known)) is not None:
            return incident.meet(logs, known.source_offset).position
        if self._settings.allows_other_writers:
            # Whatever was written after the position is written again, by another: nothing to look up.
            return continued(logs, known, known.source_offset, identity=new_identity(self._clusters, end))
        self._followed[copy] = known
        return known.at(end)

    def _check_sources(
        self, logs: Mapping[PartitionCopy, PartitionLogs], looked_up: Mapping[PartitionCopy, MirrorPosition]
    ) -> dict[PartitionCopy, MirrorPosition]:
        """Check that the source's logs are those that were copied; return the positions that go on."""
        source = self._clusters.source
        epochs = {copy.source: position.source_leader_epoch for copy, position in looked_up.items()}
        ends = epoch_end_offsets(source, epochs)
        # Logs of magic 0 and 1 keep no epochs. Their high watermark may lag behind what was mirrored, so it
        # is believed only where the leader refused our offset as well.
        doubted = [copy.source for copy in looked_up if copy.out_of_range and ends[copy.source] is None]
        ends |= list_offsets(source, dict.fromkeys(doubted, LATEST))
        same_up_to = self._sound(looked_up, {copy: ends[copy.source] for copy in looked_up})
        positions: dict[PartitionCopy, MirrorPosition] = {}
        for copy, end in same_up_to.items():
            with self._keeping_errors(copy):
                positions[copy] = self._completed(copy, self._check_source(logs[copy], looked_up[copy], end))
        return positions

    def _check_source(
        self, logs: PartitionLogs, position: MirrorPosition, same_up_to: int | None
    ) -> MirrorPosition:
        """Meet what the source has lost: the log that was mirrored, then offsets that were not yet."""
        range_end: int | None = None
        while (incident := at_source(logs, position, same_up_to)) is not None:
            self._followed.pop(logs.copy, None)
            position, _, newer_end = incident.meet(logs, position.source_offset)
            range_end, same_up_to = newer_end or range_end, None
        if range_end is None and (incident := end_before_range(logs, position)) is not None:
            range_end = incident.meet(logs, position.source_offset).range_end
        self._range_ends[logs.copy] = range_end
        return position

    def _completed(self, copy: PartitionCopy, position: MirrorPosition) -> MirrorPosition:
        # The pair of clusters may have had no topic ids, and may have been upgraded since.
        source, destination, settings = self._clusters.source, self._clusters.destination, self._settings
        position = copy.skip(position)
        offsets, before = position.offsets, position.before_cut
        if position.rules not in {settings.rules, *all_copy_rules(settings.source)}:
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
        for log, source in self._ask([copy]).values():
            with self._keeping_errors(copy):
                position = adopt(PartitionLogs(clusters, copy, log, source), others, self._watch)
                for aligned in self._committed({copy: position}).values():
                    copy.align(aligned)
                    copy.state.report_waiting(None)


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
