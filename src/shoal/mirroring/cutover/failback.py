"""
The way back: where the reverse mirror of a cut-over begins. The module sends no requests.

``shoal mirror --from B --to A --from-certificate FILE`` copies what was written at B after the cut, behind
what A had at the cut, under the same names, exactly once:

- A position of the reverse mirror is ``(source offset at B, destination offset at A)``. At the cut everything
  before both ends was equal, so the ends of the certificate, swapped, are the first position and its origin.
- The driver commits these positions to the reverse mirror's group on B, after it has joined the group and
  before it plans a task. A task then resumes from them like after any restart, and needs no other way in.
- A partition that has a position since the cut keeps it, and its ends are not compared. So a second start
  with the certificate, or one after a crash in the middle of the commits, begins nothing twice. A position
  from before the cut is replaced: its mirror ran before an earlier cut-over, in the same direction.
- Every partition is checked before any position is committed. A must end where it ended at the cut: records
  behind it would be between both copies. B must not have deleted records behind the cut: they would be lost.
  Neither topic may have been created again. Equal ends do not show that a log is the one of the cut: it may
  have lost its end in an unclean election, and have grown again. So the leader epoch of the cut must end at
  the cut or later in both logs (KIP-320). The first position has the epoch at B.
- The writer is new at A, since the cut has no producer there. There is no last batch to recognize either:
  the position says so (its ``begin``), and resuming compares what lies behind it alone.
- The offset map begins at the cut (``is_whole`` is false). An offset of B before it translates by the map of
  the first mirror, read the other way. That map stays in its group on A (:mod:`..sync.copies`).
- A mirror that goes *there again* after the way back begins over its own position of before. So the new
  position keeps the map of that former life, for groups that lag behind both cuts. The map is still exact
  if neither log has lost a record of that life since. The mirror between the cuts knows: it began where the
  former life ended, and the first milestone of its map stays there unless a log lost records from before.
  Its topics must be those of the former life. Its own map has the offsets between the cuts; the kept map
  does not. If the isolation levels of both lives differ, gaps cannot be counted.
- The kept map has at most 20 milestones, and half of them may be edges of what lies between two lives. So
  from the twelfth cut on, after incidents earlier, the oldest offsets are lower bounds.
- Partitions and topics that are not in the certificate were created after the cut, and begin as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...topic_partition import TopicPartition
from ..model.copy_options import isolation_level_of
from ..model.first_start import FirstStart
from ..model.offset_map import MOST_MILESTONES, OffsetMap, Stretch
from ..model.position import MirrorPosition, ProducerIdentity, is_another_topic
from .certificate import Certificate, CutPartition

__all__ = [
    "FailbackLog",
    "begins_at_cut",
    "cluster_problem",
    "failback_problems",
    "map_before",
    "position_at_cut",
]


@dataclass(frozen=True, slots=True)
class FailbackLog:
    """
    One side of a partition now.

    Attributes:
        topic_id: The topic's id as text; None without topic ids.
        start: The log's first offset.
        cut_epoch_end: The end of the leader epoch of the cut in this log; None if the log has no epochs.

    """

    topic_id: str | None
    start: int
    end: int
    cut_epoch_end: int | None = None


def cluster_problem(
    certificate: Certificate, source_id: str | None, destination_id: str | None, topics: Mapping[str, str]
) -> str:
    """
    Return a phrase if a reverse mirror is not one of this cut; empty if it is.

    Args:
        source_id: The id of the cluster that the reverse mirror reads.
        destination_id: The id of the cluster that it writes to.
        topics: Its topics: the names at its destination, by those at its source.

    """
    cut = certificate.destination.cluster_id, certificate.source.cluster_id
    if (source_id, destination_id) == cut[::-1] != cut:
        return "--from and --to are those of the cut-over, and the way back has them the other way round"
    if (source_id, destination_id) != cut:
        return (
            f"the way back is from cluster {cut[0]} to {cut[1]}, and the mirror goes from {source_id} to "
            f"{destination_id}"
        )
    for ours, theirs in certificate.topics.items():
        if theirs in topics and topics[theirs] != ours:
            return f"topic {theirs} came from {ours}, and would go to {topics[theirs]}. Reverse --rename"
    return ""


def begins_at_cut(cut: CutPartition, position: MirrorPosition | None) -> bool:
    """
    Whether the reverse mirror begins a partition at the cut.

    Args:
        cut: The partition at the cut.
        position: The reverse mirror's committed position; None without one.

    """
    if position is None:
        return True
    here, there = ends = cut.destination.end, cut.source.end
    reached = position.source_offset, position.destination_offset
    return position.origin != ends != reached and reached[0] <= here and reached[1] <= there


def failback_problems(
    cut: CutPartition, source: FailbackLog | None, destination: FailbackLog | None
) -> Iterator[str]:
    """
    Yield phrases: why a partition cannot go back.

    Args:
        source: The log that the reverse mirror reads now, the destination's of the cut; None without one.
        destination: The log that it writes to now, the source's of the cut; None without one.

    """
    for log, now in ((cut.destination, source), (cut.source, destination)):
        name = TopicPartition(log.topic, cut.partition)
        if now is None:
            yield f"there is no {name} any more"
            continue
        if is_another_topic(log.topic_id, now.topic_id):
            yield f"topic {log.topic} was created again after the cut"
        if now is source and now.start > log.end:
            lost = now.start - log.end
            yield f"{name} begins at {now.start:,} now: {lost:,} offsets behind the cut were deleted"
        if now.end < log.end:
            yield f"{name} ends at {now.end:,} now, before the cut at {log.end:,}: it has lost records"
        elif now is destination and now.end > log.end:
            yield f"{name} ends at {now.end:,} now, behind the cut at {log.end:,}: it was written to since"
        elif now.cut_epoch_end is not None and now.cut_epoch_end < log.end:
            yield (
                f"{name} has lost its records from {now.cut_epoch_end:,} up to the cut at {log.end:,} and "
                f"has others there: leader epoch {log.leader_epoch} ends at {now.cut_epoch_end:,} now"
            )


def map_before(
    cut: CutPartition, former: MirrorPosition | None, between: MirrorPosition | None, rules: str
) -> OffsetMap | None:
    """
    Return the map of a mirror's former life, up to the cut at which it begins again.

    Args:
        cut: The partition at the cut.
        former: The position at which the former life ended; None without one.
        between: The position of the mirror that led to the cut; None without one.
        rules: The digest of the mirror's rules now.

    Returns:
        None if the map does not hold any more, or nothing shows that it does.

    """
    if former is None or between is None:
        return None
    ids = cut.destination.topic_id, cut.source.topic_id
    for then in (
        (former.source_topic_id, former.destination_topic_id),
        (between.destination_topic_id, between.source_topic_id),
    ):
        if any(map(is_another_topic, then, ids)):
            return None
    begun, here, stretch = between.offsets.milestones[0]
    if former.destination_offset != begun or former.source_offset > here or stretch is not Stretch.KNOWN:
        return None
    offsets = former.all_offsets.reached(here, begun)
    if (level := isolation_level_of(former.rules)) is None or level is not isolation_level_of(rules):
        offsets = offsets.counted_otherwise()
    offsets = offsets.reached(cut.destination.end, cut.source.end, Stretch.BROKEN)
    return offsets.with_at_most(MOST_MILESTONES // 2)


def position_at_cut(
    cut: CutPartition,
    producer: ProducerIdentity,
    rules: str,
    first_start: FirstStart | None,
    before: OffsetMap | None,
) -> MirrorPosition:
    """
    Return the first position of the reverse mirror in a partition without a problem.

    Args:
        producer: One that the partition does not know.
        rules: The digest of the reverse mirror's rules.
        first_start: The reverse mirror's first start.
        before: The map of its former life (:func:`map_before`).

    """
    source, destination = cut.destination, cut.source
    return MirrorPosition(
        source_offset=source.end,
        destination_offset=destination.end,
        identity=producer,
        origin=(source.end, destination.end),
        source_topic_id=source.topic_id,
        destination_topic_id=destination.topic_id,
        rules=rules,
        # The last batch may be older than this epoch, which still ends before the cut if the log loses
        # records of the cut.
        source_leader_epoch=source.leader_epoch,
        first_start=first_start,
        milestones=OffsetMap.begun_at(
            source.end, destination.end, is_whole=source.end == destination.end == 0
        ),
        begin=destination.end,
        before_cut=before,
    )
