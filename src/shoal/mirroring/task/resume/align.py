"""Align the partitions of a task with their destinations, from a committed position or an inherited one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....client.cluster import Cluster
from ....errors import ShoalError
from ....topic_partition import TopicPartition
from ...model.copy_options import CopySettings
from ...model.handover import InheritedPosition
from ...model.incidents import Incident
from ...model.position import MirrorPosition, is_another_topic
from ...other_groups import OtherGroups, topic_id
from ...positions import Positions
from ..partition import PartitionCopy
from .adopt import Watch, adopt, is_to_adopt
from .begin import begin
from .logs import Clusters, PartitionLogs, destination_logs, last_batches, source_logs, times_in_source
from .resume import Resumption

__all__ = ["leader_epochs_of", "resume_partitions", "still_aligned", "take_over"]


def resume_partitions(
    copies: Sequence[PartitionCopy],
    source: Cluster,
    destination: Cluster,
    group_positions: Positions,
    settings: CopySettings,
    watch: Watch,
) -> dict[TopicPartition, ShoalError]:
    """
    Align each partition with its destination. Nothing may be in flight, and both metadata are fresh.

    A partition that was aligned before in this process resumes from its position in
    memory, the others from their committed position. A partition without a position
    begins. A first position, and one that an incident has moved, is committed before
    this returns, and the incident is reported before that. Copies to take over come last,
    one after the other, each committed by itself, because comparing one may take long.

    Args:
        group_positions: The group's committed positions.
        watch: Receives the progress of a long comparison, and ends it.

    Returns:
        For each source partition that could not be aligned, why:
        :class:`~shoal.errors.PartitionStopped`, or an error that time can heal.

    """
    clusters = Clusters(source, destination, settings)
    # The positions first: an orphan may still commit, and a position ahead of its log looks like a lost tail.
    committed, others = group_positions.read_all([copy.source for copy in copies if copy.position is None])
    positions = {copy.source: copy.position for copy in copies if copy.position} | committed
    logs, errors = destination_logs(destination, copies)
    sources = source_logs(source, copies, positions)
    other_groups = OtherGroups(
        source, destination, settings.group, {copy.source: copy.destination for copy in copies}
    )
    to_commit: dict[TopicPartition, MirrorPosition] = {}
    aligned: list[tuple[PartitionCopy, MirrorPosition, list[Incident]]] = []
    answered = [copy for copy in copies if copy.source not in errors]
    to_adopt = [
        copy
        for copy in answered
        if copy.source not in positions and is_to_adopt(settings, logs[copy.destination])
    ]
    to_resume = [copy for copy in answered if copy not in to_adopt]
    last = last_batches(
        destination, settings, {each.destination: logs[each.destination] for each in to_resume}
    )
    times = times_in_source(source, [copy for copy in to_resume if copy.source not in positions], last)
    for copy in to_resume:
        incidents: list[Incident] = []
        try:
            last_batch = last.get(copy.destination)
            if isinstance(last_batch, ShoalError):
                raise last_batch
            source_offsets = times.get(copy.source, {})
            both = PartitionLogs(clusters, copy, logs[copy.destination], last_batch, source_offsets)
            known = positions.get(copy.source)
            if known is None:
                consumed = others.get(copy.source) if settings.takes_over_offsets else None
                position = begin(both, incidents, other_groups, consumed)
            else:
                source_log = sources[copy.source]
                if isinstance(source_log, ShoalError):
                    raise source_log
                position = Resumption(both, known, source_log, incidents, other_groups).run()
                position = _skip(copy, _with_topic_ids(clusters, copy, position), incidents)
                position = replace(
                    position.with_milestone(), first_start=settings.first_start or position.first_start
                )
        except ShoalError as error:
            errors[copy.source] = error
            # Those that did not stop it are met again the next time.
            copy.count_incidents(each for each in incidents if not each.continued)
        else:
            aligned.append((copy, position, incidents))
            if (
                known is None
                or incidents
                or (known.rules, known.identity) != (position.rules, position.identity)
            ):
                to_commit[copy.source] = position
    if to_commit:
        # Reported first: if the process dies in between, the next one reports them again, rather than none.
        news = [copy.report_incidents(incidents) for copy, _, incidents in aligned]
        if any(news):
            watch.report_now()
        try:
            errors.update(group_positions.commit(to_commit))
        except ShoalError:
            # The commit may have taken effect. The next alignment begins at the same positions, and meets the
            # same incidents.
            for copy, _, incidents in aligned:
                if incidents and copy.source in committed:
                    copy.keep_position(committed[copy.source])
            raise
    for copy, position, _ in aligned:
        if copy.source not in errors:
            copy.align(position)
    for copy in to_adopt:
        errors.update(_adopt(clusters, copy, group_positions, other_groups, watch))
    return errors


def _adopt(
    clusters: Clusters, copy: PartitionCopy, group_positions: Positions, others: OtherGroups, watch: Watch
) -> dict[TopicPartition, ShoalError]:
    """Take one copy over and commit its position; return why not, if that cannot be."""
    try:
        # Asked again: to compare the copies before this one may have taken hours.
        logs, errors = destination_logs(clusters.destination, [copy])
        if not errors:
            position = adopt(PartitionLogs(clusters, copy, logs[copy.destination]), others, watch)
            errors = dict(group_positions.commit({copy.source: position}))
            if not errors:
                copy.align(position)
                copy.state.report_waiting(None)
    except ShoalError as error:
        return {copy.source: error}
    return errors


def _with_topic_ids(clusters: Clusters, copy: PartitionCopy, position: MirrorPosition) -> MirrorPosition:
    """Complete a pair of clusters that had no topic ids, and were upgraded since."""
    return replace(
        position,
        source_topic_id=position.source_topic_id or topic_id(clusters.source, copy.source),
        destination_topic_id=position.destination_topic_id
        or topic_id(clusters.destination, copy.destination),
    )


def _skip(copy: PartitionCopy, position: MirrorPosition, incidents: list[Incident]) -> MirrorPosition:
    """Move a position past the batches that the destination refused, if nothing changed since."""
    skipped = copy.take_skipped()
    if skipped is None or skipped.after != position.source_offset:
        return position  # the mirror meets the refused batch again
    incidents.append(skipped.incident)
    return position.moved(source_offset=skipped.end, source_leader_epoch=skipped.leader_epoch)


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
        copy.position is None
        and position.rules == settings.rules
        and position.source_topic_id == topic_id(source, copy.source)
        and position.destination_topic_id == topic_id(destination, copy.destination)
        and left.leader_epochs == leader_epochs
    )
