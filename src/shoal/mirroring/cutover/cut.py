"""The certificate of a cut, from the observed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ...topic_partition import TopicPartition
from ...verify import PartitionReport
from ..sync.report import Action, GroupOffset
from .certificate import Certificate, CutGroupOffset, CutLog, CutPartition
from .observing import Observer
from .partition_seen import PartitionSeen

__all__ = ["certificate_of"]


def certificate_of(
    observer: Observer,
    seen: Sequence[PartitionSeen],
    logs: Mapping[TopicPartition, tuple[CutLog, CutLog]],
    compared: Mapping[TopicPartition, PartitionReport],
    offsets: Iterable[GroupOffset],
    gates_s: Mapping[str, float],
) -> Certificate:
    """
    Return the certificate.

    Args:
        seen: The partitions at the last look.
        logs: Both sides of each partition, by source partition.
        compared: The comparison of the records, by source partition.
        offsets: The offsets of the consumer groups.
        gates_s: How many seconds each gate took.

    """
    positions = [observer.position_of(each.source) for each in seen]
    return Certificate(
        datetime.now(UTC).isoformat(timespec="seconds"),
        *observer.clusters(),
        observer.group,
        next((each.rules for each in positions if each is not None), ""),
        dict(observer.topics),
        tuple(_partition(observer, each, *logs[each.source], compared.get(each.source)) for each in seen),
        tuple(_offset(each) for each in offsets if each.action is not Action.NOT_MIRRORED),
        gates_s,
    )


def _partition(
    observer: Observer, seen: PartitionSeen, ours: CutLog, theirs: CutLog, compared: PartitionReport | None
) -> CutPartition:
    position = observer.position_of(seen.source)
    # Records behind the copy are of producers that have begun at the destination: they go back later.
    end = theirs.end if seen.copy_end is None else seen.copy_end
    return CutPartition(
        seen.source.partition,
        ours,
        replace(theirs, start=min(theirs.start, end), end=end),
        None if position is None else position.origin,
        0 if compared is None else compared.records,
        0 if compared is None else compared.batches,
    )


def _offset(offset: GroupOffset) -> CutGroupOffset:
    return CutGroupOffset(
        offset.group,
        *offset.partition,
        offset.committed,
        offset.translated,
        None if offset.exactness is None else offset.exactness.value,
        offset.action.value,
    )
