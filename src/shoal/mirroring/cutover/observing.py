"""
A mirror and its groups, as both clusters show them, and the certificate of a cut from the observed values.

Only :meth:`Observer.commit_groups` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ...client.acls import Resource, describe_acls
from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.coordinator import MemberId
from ...client.groups import describe_holder
from ...client.offsets import EARLIEST, LATEST, LogOffsets, answered, ask_logs, known_log_ends, list_offsets
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError, lacks_acl
from ...topic_partition import TopicPartition
from ...verify import PartitionReport, VerifyProgress, VerifyReport, verify
from ..model.acls import THE_CLUSTER, Acl, acls_on, principal_of
from ..model.copy_options import CopySettings, copy_rules
from ..model.position import MirrorPosition
from ..positions import GroupPositions
from ..prepare.copies import present_problem
from ..prepare.unmatched import select_topics
from ..sync.acls import mirror_principals, missing_at_destination
from ..sync.configs import follow_configs
from ..sync.follow_report import at_both
from ..sync.groups import GroupSync
from ..sync.report import Action, GroupOffset, GroupsReport
from .certificate import Certificate, CutCluster, CutGroupOffset, CutLog, CutPartition
from .options import Allowed, CutoverOptions
from .partition_seen import PartitionSeen

__all__ = ["Observer", "certificate_of"]


class Observer:
    """Asks both clusters. One thread uses it."""

    def __init__(self, source: Cluster, destination: Cluster, options: CutoverOptions) -> None:
        """
        Select the topics.

        Args:
            options: The options of the cut-over.

        Raises:
            ConfigError: No topic matches, or a topic that was named is missing.
            ShoalError: A cluster does not respond.

        """
        self._source = source
        self._destination = destination
        self._options = options
        mirror = options.mirror
        self.topics: dict[str, str] = {}
        self.group = ""
        found = source.refresh().topics  # at once: the address may be wrong
        missing = mirror.topics.missing(found)
        if missing:
            raise self._missing_topic(missing[0])
        self.topics = select_topics(mirror.topics, found, source)
        destination.refresh(self.topics.values())
        self.group = mirror.group_between(source.metadata.cluster_id, destination.metadata.cluster_id)
        settings = CopySettings.of(mirror, mirror.source, mirror.destination, self.group)
        self._sync = GroupSync(source, destination, settings, options.selection, with_states=True)

    def _missing_topic(self, topic: str) -> ConfigError:
        """Return the error of a topic that was named and is not there, or that the cluster does not show."""
        refusal = self._source.refresh([topic]).errors.get(topic)
        if refusal == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            mirror = self._options.mirror
            self.topics = {topic: mirror.topics.destination_of(topic)}
            return ConfigError(
                f"topic {topic!r} of {self._source}: not authorized for "
                f"{principal_of(mirror.source)}. {self._remedy()}"
            )
        return ConfigError(f"there is no topic {topic!r} on {self._source}. Name the topics that move")

    # The mirror

    def holder(self) -> str | None:
        """Return the member of the mirror's group as a phrase; None if no mirror runs."""
        return describe_holder(self._source, self.group)

    def partitions(self) -> list[PartitionSeen]:
        """
        Return all partitions of the source. Their positions are read before their ends.

        Topics that match and are new since the beginning are left out, but new partitions are not. The log
        ends are read first, then the high watermarks, then the last stable offsets: a log that grows
        meanwhile does not look like one with an open transaction, or with followers that lag.

        Raises:
            ShoalError: A leader does not respond, or the mirror's group cannot be read.

        """
        wanted = self._source.refresh(self.topics).partitions_of(sorted(self.topics))
        self._destination.refresh(self.topics.values())
        positions = GroupPositions(self._source, self.group, MemberId).read(wanted)
        written = known_log_ends(self._source, wanted)
        logs = answered(ask_logs(self._source, wanted, 0.0))
        return [self._seen(each, positions.get(each), logs[each], written.get(each, 0)) for each in wanted]

    def _seen(
        self, partition: TopicPartition, position: MirrorPosition | None, log: LogOffsets, written: int
    ) -> PartitionSeen:
        return PartitionSeen(
            partition,
            self.copy_of(partition),
            log.start,
            # Between both questions the log may have grown, or a transaction have ended.
            min(log.stable, log.end),
            log.end,
            position,
            self._source.config.isolation_level is IsolationLevel.READ_UNCOMMITTED,
            "" if position is None else self._recreated(partition, position),
            max(0, written - log.end),
        )

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        """Return the copy of a source partition."""
        return TopicPartition(self.topics[partition.topic], partition.partition)

    def _recreated(self, partition: TopicPartition, position: MirrorPosition) -> str:
        copy = self.copy_of(partition)
        problem = present_problem(self._source, partition, position.source_topic_id)
        return problem or present_problem(self._destination, copy, position.destination_topic_id)

    def logs(self, seen: Sequence[PartitionSeen]) -> dict[TopicPartition, tuple[CutLog, CutLog]]:
        """
        Return both sides of partitions for the certificate, by source partition.

        Raises:
            ShoalError: A leader at the destination does not respond.

        """
        copies = [each.destination for each in seen]
        ends = answered(list_offsets(self._destination, dict.fromkeys(copies, LATEST)))
        starts = answered(list_offsets(self._destination, dict.fromkeys(copies, EARLIEST)))
        # A leader of a later epoch than that of the metadata, which the certificate gets, refuses this.
        known_log_ends(self._destination, copies)
        return {
            each.source: (
                _log(self._source, each.source, each.start, each.end),
                _log(self._destination, each.destination, starts[each.destination], ends[each.destination]),
            )
            for each in seen
        }

    def clusters(self) -> tuple[CutCluster, CutCluster]:
        """Return both clusters for the certificate."""
        mirror = self._options.mirror
        return (
            CutCluster(self._source.metadata.cluster_id, mirror.source.servers),
            CutCluster(self._destination.metadata.cluster_id, mirror.destination.servers),
        )

    # Configurations, ACLs and groups

    def drift(self) -> list[str]:
        """
        Return phrases about configurations and ACLs that the destination lacks, or that cannot be compared.

        ACLs that only the destination has are no drift: shoal deletes none.
        """
        found: list[str] = []
        if Allowed.CONFIGS not in self._options.allow:
            clusters = self._source, self._destination
            names = at_both(self.topics, *clusters)
            found += follow_configs(*clusters, names, changes=False).differences
        if Allowed.ACLS not in self._options.allow:
            found += self._acls()
        return found

    def _acls(self) -> Iterator[str]:
        options = self._options
        try:
            found = missing_at_destination(
                self._source, self._destination, self.topics, self.group, options.mirror, options.selection
            )
        except BrokerError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            yield from self._missing_authorizer()
            return
        own = mirror_principals(found.at_source, self.group)
        for each in found.missing:
            if each.principal not in own:
                yield f"the destination lacks the ACL {each}"

    def _missing_authorizer(self) -> Iterator[str]:
        """Yield what the move changes for clients if one of the clusters has no authorizer."""
        checking = [each for each in (self._source, self._destination) if _has_authorizer(each)]
        if len(checking) == 1:
            yield (
                f"only {checking[0]} checks ACLs, so none can be compared. Grant the clients what they need "
                "at the destination, if it is the one that checks"
            )

    def remedy_of(self, error: ShoalError) -> str:
        """Return the commands that grant what a cut-over needs, if this principal lacks an ACL."""
        return self._remedy() if lacks_acl(error) else ""

    def _remedy(self) -> str:
        with_acls = Allowed.ACLS not in self._options.allow
        acls = cutover_acls(self.topics, self.group, with_acls=with_acls)
        return f"Allow it. {self._options.mirror.grants(*acls)}"

    def groups(self) -> GroupsReport:
        """Read and translate the offsets of the groups; nothing is committed."""
        return self._sync.round(self.topics, apply=False)

    def commit_groups(self) -> GroupsReport:
        """Read, translate and commit the offsets of the groups, but those that a transaction would change."""
        return self._sync.round(self.topics, apply=True, stable=True)

    # The records

    def verify(
        self, earlier: VerifyReport | None, on_progress: Callable[[VerifyProgress], object]
    ) -> VerifyReport:
        """Compare the records that an earlier comparison has not found equal."""
        mirror = self._options.mirror
        return verify(
            mirror.source,
            mirror.destination,
            self.topics,
            group=self.group,
            rules={copy_rules(mirror.source)},
            options=mirror,
            on_progress=on_progress,
            earlier=None if earlier is None else earlier.state,
        )


def cutover_acls(names: Mapping[str, str], group: str, *, with_acls: bool) -> list[Acl]:
    """
    Return the ACLs that a cut-over needs besides those on consumer groups: it writes no records.

    Args:
        names: The topics at the destination, by their names at the source.
        group: The mirror's group; empty if it is not known.
        with_acls: Whether it compares the ACLs of both clusters.

    """
    acls = acls_on("source", "topic", names, "READ", "DESCRIBE_CONFIGS")
    acls += acls_on("destination", "topic", names.values(), "READ", "DESCRIBE_CONFIGS")
    if group:
        acls += acls_on("source", "group", [group], "DESCRIBE")
    for side in ("source", "destination") if with_acls else ():
        acls += acls_on(side, "cluster", [THE_CLUSTER], "DESCRIBE")
    return acls


def _has_authorizer(cluster: Cluster) -> bool:
    try:
        describe_acls(cluster, Resource.GROUP)
    except BrokerError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return False
    return True


def _log(cluster: Cluster, partition: TopicPartition, start: int, end: int) -> CutLog:
    topic = cluster.metadata.topics[partition.topic]
    return CutLog(
        partition.topic,
        None if topic.topic_id is None else str(topic.topic_id),
        start,
        max(start, end),
        topic.partitions[partition.partition].leader_epoch,
    )


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
    return Certificate(
        datetime.now(UTC).isoformat(timespec="seconds"),
        *observer.clusters(),
        observer.group,
        next((each.position.rules for each in seen if each.position is not None), ""),
        dict(observer.topics),
        tuple(_partition(each, *logs[each.source], compared.get(each.source)) for each in seen),
        tuple(_offset(each) for each in offsets if each.action is not Action.NOT_MIRRORED),
        gates_s,
    )


def _partition(
    seen: PartitionSeen, ours: CutLog, theirs: CutLog, compared: PartitionReport | None
) -> CutPartition:
    # Records behind the copy are of producers that have begun at the destination: they go back later.
    end = theirs.end if seen.copy_end is None else seen.copy_end
    return CutPartition(
        seen.source.partition,
        ours,
        replace(theirs, start=min(theirs.start, end), end=end),
        None if seen.position is None else seen.position.origin,
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
