"""The findings of a dry run: values only."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ShoalError
from ..model.acls import Acl
from ..prepare.changes import PreparedTopic

__all__ = ["DryRun", "PartitionOutlook", "TopicOutlook"]


@dataclass(frozen=True, slots=True)
class PartitionOutlook:
    """
    The offsets of one partition that a mirror would copy.

    Attributes:
        start_offset: The first source offset to copy.
        committed: Whether the group has committed it; if not, the option ``start`` decides.
        end_offset: The end of the records that can be copied now.
        at_cut: Whether the partition begins at the cut of a certificate.
    """

    partition: int
    start_offset: int
    committed: bool
    end_offset: int
    at_cut: bool = False

    @property
    def offsets(self) -> int:
        """The number of offsets; some may have no record (transactions, compaction)."""
        return max(0, self.end_offset - self.start_offset)


@dataclass(frozen=True, slots=True)
class TopicOutlook:
    """A topic, and the start of each of its partitions."""

    plan: PreparedTopic
    partitions: tuple[PartitionOutlook, ...]

    @property
    def offsets(self) -> int:
        """The sum over all partitions."""
        return sum(each.offsets for each in self.partitions)


@dataclass(frozen=True, slots=True)
class DryRun:
    """
    The findings of a dry run.

    Attributes:
        group: The consumer group on the source cluster.
        source_cluster_id: None if the cluster is too old to have one.
        destination_cluster_id: None if the cluster is too old to have one.
        holder: The member of the group; None if the group is empty.
        topics: The topics by their names at the source; none if the mirror was refused before.
        acls: The ACLs that the mirror's principal needs.
        missing_acls: The ACLs of these that this principal lacks, as far as the clusters return them: for
            topics that exist, and for the group.
        warnings: Sentences: the object, the problem, the remedy.
        beginnings: Notices about the start positions of partitions without one, if the mirror starts at the
            latest records.
        differences: The configurations and ACLs in which copies differ, and what could not be compared.
        refusal: The reason why the mirror would not begin; None if it would.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    holder: str | None
    topics: tuple[TopicOutlook, ...]
    acls: tuple[Acl, ...]
    missing_acls: tuple[Acl, ...]
    warnings: tuple[str, ...]
    refusal: ShoalError | None
    beginnings: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
