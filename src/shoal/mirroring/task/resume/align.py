"""
Align the partitions of a task with their destinations: by a map that is known, or by an inherited position.

An alignment asks in few requests, each for all partitions of a leader: the group's maps, the ends and last
batches of the copies, then the starts and epochs of the source's logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ....client.cluster import Cluster
from ....errors import ShoalError
from ....records import RecordBatch
from ....topic_partition import TopicPartition
from ...model.copy_options import CopySettings, all_copy_rules
from ...model.handover import InheritedPosition
from ...model.incidents import Incident
from ...model.position import MirrorPosition, is_another_topic
from ...other_groups import OtherGroups, topic_id
from ..committer import Commits
from ..partition import PartitionCopy
from .adopt import Watch, adopt, is_to_adopt
from .begin import begin
from .logs import Clusters, DestinationLog, PartitionLogs, destination_logs, last_batches, source_logs
from .resume import Resumption

__all__ = ["leader_epochs_of", "resume_partitions", "still_aligned", "take_over"]


@dataclass
class _Alignment:
    """
    One partition's alignment.

    Attributes:
        known: The map that it begins with; None if the partition has none.
        resumption: Its way from there; None if it begins.
        position: The position to continue from.

    """

    copy: PartitionCopy
    known: MirrorPosition | None
    resumption: Resumption | None = None
    position: MirrorPosition | None = None
    incidents: list[Incident] = field(default_factory=list)

    @property
    def must_commit(self) -> bool:
        """
        Whether to commit the position before anything is sent: it does not follow from a map of this process.

        A map that was only read may not be the newest one in the coordinator's log: the append of another may
        have failed on a follower, and be read after the coordinator has moved.
        """
        return self.copy.committed is None or bool(self.incidents)


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
    clusters = Clusters(source, destination, settings)
    # The positions first: an orphan may still commit, and a position ahead of its log looks like a lost tail.
    known, consumed = _known_maps(copies, commits, settings)
    logs, errors = destination_logs(destination, copies)
    alignments = [_Alignment(copy, known.get(copy.source)) for copy in copies if copy.source not in errors]
    to_adopt = [
        each.copy
        for each in alignments
        if each.known is None and is_to_adopt(settings, logs[each.copy.destination])
    ]
    to_align = [each for each in alignments if each.copy not in to_adopt]
    last = last_batches(
        destination, settings, {each.copy.destination: logs[each.copy.destination] for each in to_align}
    )
    for each in to_align:
        copy = each.copy
        with _keeping_errors(each, errors):
            _look_at_destination(
                each, clusters, logs[copy.destination], last.get(copy.destination), consumed.get(copy.source)
            )
    _look_at_sources([each for each in to_align if each.copy.source not in errors], clusters, errors)
    aligned = [each for each in to_align if each.copy.source not in errors]
    errors.update(_commit(aligned, commits, watch))
    for each in aligned:
        if each.copy.source not in errors and each.position is not None:
            if each.resumption is not None:
                each.resumption.count_landed()
            each.copy.align(each.position)
    for copy in to_adopt:
        if copy.is_slow:
            errors.update(_adopt(clusters, copy, commits, watch))
        else:
            copy.align_slowly()
    return errors


def _known_maps(
    copies: Sequence[PartitionCopy], commits: Commits, settings: CopySettings
) -> tuple[dict[TopicPartition, MirrorPosition], dict[TopicPartition, int]]:
    """Return the map that each partition begins with, and the consumers' offsets that count as positions."""
    if settings.allows_other_writers:
        # Acknowledged records are not sent again.
        known = {copy.source: copy.position for copy in copies if copy.position}
    else:
        # Of a silent source nothing was in flight: its position may have passed what was dropped since.
        known = {
            copy.source: (copy.position if copy.is_slow else None) or copy.committed
            for copy in copies
            if copy.committed
        }
    read, others = commits.read_all([copy.source for copy in copies if copy.source not in known])
    return known | read, others if settings.takes_over_offsets else {}


@contextmanager
def _keeping_errors(each: _Alignment, errors: dict[TopicPartition, ShoalError]) -> Iterator[None]:
    """Keep an error as that of the partition."""
    try:
        yield
    except ShoalError as error:
        errors[each.copy.source] = error
        # Those that did not stop it are met again the next time.
        each.copy.count_incidents(incident for incident in each.incidents if not incident.continued)


def _look_at_destination(
    each: _Alignment,
    clusters: Clusters,
    log: DestinationLog,
    last: RecordBatch | ShoalError | None,
    consumed: int | None,
) -> None:
    """Find the place in the source by the copy alone, or begin."""
    if isinstance(last, ShoalError):
        raise last
    logs = PartitionLogs(clusters, each.copy, log, last)
    if each.known is None:
        each.position = begin(logs, each.incidents, consumed)
        return
    each.resumption = Resumption(logs, each.known, each.incidents)
    each.resumption.look_up_end()


def _look_at_sources(
    alignments: Sequence[_Alignment], clusters: Clusters, errors: dict[TopicPartition, ShoalError]
) -> None:
    """Check that the source's logs are those that were copied."""
    resumptions = {each.copy.source: each.resumption for each in alignments if each.resumption}
    logs = source_logs(
        clusters.source,
        [each.copy for each in alignments],
        {partition: resumption.position for partition, resumption in resumptions.items()},
    )
    for each in alignments:
        if each.resumption is None:
            continue
        with _keeping_errors(each, errors):
            log = logs[each.copy.source]
            if isinstance(log, ShoalError):
                raise log
            each.resumption.check_source(log)
            position = _with_topic_ids(clusters, each.copy, each.resumption.position)
            position = _skip(each.copy, position, each.incidents)
            settings = clusters.settings
            each.position = replace(
                _counted_by(settings, position),
                rules=settings.rules,
                first_start=settings.first_start or position.first_start,
            )


def _commit(
    aligned: Sequence[_Alignment], commits: Commits, watch: Watch
) -> Mapping[TopicPartition, ShoalError]:
    to_commit = {each.copy: each.position for each in aligned if each.position and each.must_commit}
    if not to_commit:
        return {}
    # Reported first: if the process dies in between, the next one reports them again, rather than none.
    news = [each.copy.report_incidents(each.incidents) for each in aligned]
    if any(news):
        watch.report_now()
    return commits.commit_aligned(to_commit)


def _adopt(
    clusters: Clusters, copy: PartitionCopy, commits: Commits, watch: Watch
) -> Mapping[TopicPartition, ShoalError]:
    """Take one copy over and commit its position; return why not, if that cannot be."""
    others = OtherGroups(
        clusters.source, clusters.destination, clusters.settings.group, {copy.source: copy.destination}
    )
    incidents: list[Incident] = []
    try:
        # Asked again: to compare the copies before this one may have taken hours.
        logs, errors = destination_logs(clusters.destination, [copy])
        if errors:
            return errors
        position = adopt(PartitionLogs(clusters, copy, logs[copy.destination]), others, watch, incidents)
        if copy.report_incidents(incidents):
            watch.report_now()
        refused = commits.commit_aligned({copy: position})
        if not refused:
            copy.align(position)
            copy.state.report_waiting(None)
    except ShoalError as error:
        copy.count_incidents(each for each in incidents if not each.continued)
        return {copy.source: error}
    return refused


def _with_topic_ids(clusters: Clusters, copy: PartitionCopy, position: MirrorPosition) -> MirrorPosition:
    """Complete a pair of clusters that had no topic ids, and were upgraded since."""
    return replace(
        position,
        source_topic_id=position.source_topic_id or topic_id(clusters.source, copy.source),
        destination_topic_id=position.destination_topic_id
        or topic_id(clusters.destination, copy.destination),
    )


def _counted_by(settings: CopySettings, position: MirrorPosition) -> MirrorPosition:
    """Make the position a milestone of its map, which trusts no count of another isolation level."""
    offsets = position.offsets
    if position.rules not in {settings.rules, *all_copy_rules(settings.source)}:
        offsets = offsets.counted_otherwise()
    return replace(position, milestones=offsets)


def _skip(copy: PartitionCopy, position: MirrorPosition, incidents: list[Incident]) -> MirrorPosition:
    """Move a position past the batches that the destination refused, if nothing changed since."""
    skipped = copy.take_skipped()
    if skipped is None or skipped.after != position.source_offset:
        return position  # the mirror meets the refused batch again
    incidents.append(skipped.incident)
    return position.moved(source_offset=skipped.end, source_leader_epoch=skipped.leader_epoch, plan=())


# Without asking the clusters


def take_over(
    copies: Sequence[PartitionCopy], source: Cluster, destination: Cluster, settings: CopySettings
) -> list[tuple[PartitionCopy, InheritedPosition]]:
    """
    Align the partitions that a former task left, if nothing happened to either cluster since.

    This sends no request. A partition that is not taken over here has to be resumed.

    Returns:
        The partitions that are aligned now, and how they were left.

    """
    taken = []
    for copy in copies:
        left = copy.take_inherited()
        if left is not None and _still_holds(left, copy, source, destination, settings):
            copy.align(left.position)
            copy.keep_leader_epochs(left.leader_epochs)
            taken.append((copy, left))
    return taken


def leader_epochs_of(copy: PartitionCopy, source: Cluster, destination: Cluster) -> tuple[int, int]:
    """Return both sides' leader epochs, as the metadata have them; raises if there is no leader."""
    return source.partition(copy.source).leader_epoch, destination.partition(copy.destination).leader_epoch


def still_aligned(copy: PartitionCopy, source: Cluster, destination: Cluster) -> bool:
    """
    Return whether both topics, and both leaders' epochs, are those that a copy is aligned with.

    Raises:
        BrokerError: A partition has no leader, or its topic does not exist.

    """
    assert copy.position is not None, "it is aligned"
    return (
        copy.leader_epochs == leader_epochs_of(copy, source, destination)
        and not is_another_topic(copy.position.source_topic_id, topic_id(source, copy.source))
        and not is_another_topic(copy.position.destination_topic_id, topic_id(destination, copy.destination))
    )


def _still_holds(
    left: InheritedPosition,
    copy: PartitionCopy,
    source: Cluster,
    destination: Cluster,
    settings: CopySettings,
) -> bool:
    """Whether both topics are those of then, and neither partition has had an election since."""
    position = left.position
    try:
        leader_epochs = leader_epochs_of(copy, source, destination)
    except ShoalError:
        return False
    return (
        copy.position in (None, position)
        and position.rules == settings.rules
        and position.source_topic_id == topic_id(source, copy.source)
        and position.destination_topic_id == topic_id(destination, copy.destination)
        and left.leader_epochs == leader_epochs
    )
