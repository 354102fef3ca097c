"""
The first positions of a mirror that goes back to the source of a cut-over (:mod:`..cutover.failback`).

The mirror looks for its way back before it creates a topic, so that a wrong cluster stays as it is; and once
it holds its group, before anything else gives a partition a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from ...client.admin import init_producer_id
from ...client.cluster import Cluster, is_transient, patiently
from ...client.coordinator import MemberId
from ...client.groups import group_assignment
from ...client.offsets import EARLIEST, LATEST, answered, epoch_end_offsets, known_log_ends, list_offsets
from ...errors import BrokerError, ConfigError, ProtocolError
from ...topic_partition import TopicPartition
from ..cutover.certificate import Certificate, CutLog, CutPartition, read_certificate
from ..cutover.failback import (
    FailbackLog,
    begins_at_cut,
    cluster_problem,
    failback_problems,
    map_before,
    position_at_cut,
)
from ..model.copy_options import copy_rules
from ..model.offset_map import OffsetMap
from ..model.options import MirrorOptions
from ..model.position import ProducerIdentity
from ..model.text import first_few
from ..positions import GroupOffsets, GroupPositions

__all__ = ["first_mirror_group", "go_back", "starts_at_cut"]


def first_mirror_group(options: MirrorOptions) -> str | None:
    """Return the group of the mirror that led to the cut; None without a readable certificate."""
    if options.from_certificate is not None:
        with suppress(ConfigError):
            return read_certificate(options.from_certificate).mirror_group
    return None


def starts_at_cut(
    options: MirrorOptions,
    state: GroupOffsets,
    source: Cluster,
    destination: Cluster,
    *,
    patience_s: float,
) -> Mapping[TopicPartition, int]:
    """
    Return the first offsets of partitions that begin at the cut of a certificate; change nothing.

    Args:
        options: The options of the mirror. Without ``from_certificate`` no partition begins so.
        state: The committed offsets of the mirror's group.
        source: The cluster that the mirror reads.
        destination: The cluster that it writes to.
        patience_s: How long to retry transient errors.

    Raises:
        ConfigError: The certificate cannot be read, the mirror is not the way back of its cut, or a partition
            has changed since.
        ShoalError: A cluster does not respond.

    """
    if options.from_certificate is None:
        return {}
    certificate = read_certificate(options.from_certificate)
    cuts = patiently(lambda: _find(options, certificate, state, source, destination), patience_s=patience_s)
    return {partition: cut.destination.end for partition, cut in cuts.items()}


def _find(
    options: MirrorOptions,
    certificate: Certificate,
    state: GroupOffsets,
    source: Cluster,
    destination: Cluster,
) -> Mapping[TopicPartition, CutPartition]:
    """Return the partitions that begin at the cut, by the partition that the mirror reads."""
    topics = options.topics.select(source.refresh().topics)
    destination.refresh(topics.values())
    ids = source.metadata.cluster_id, destination.metadata.cluster_id
    if problem := cluster_problem(certificate, *ids, topics):
        reason = f"the certificate is of another cut-over: {problem}"
        raise ConfigError(reason)
    selected = {
        TopicPartition(cut.destination.topic, cut.partition): cut
        for cut in certificate.partitions
        if cut.destination.topic in topics
    }
    _check_stopped(certificate, selected.values(), destination)
    cuts = {each: cut for each, cut in selected.items() if begins_at_cut(cut, state.positions.get(each))}
    here = _logs(source, {each: cut.destination for each, cut in cuts.items()})
    there = _logs(destination, {cut.source_partition: cut.source for cut in cuts.values()})
    problems = [
        problem
        for each, cut in sorted(cuts.items())
        for problem in failback_problems(cut, here.get(each), there.get(cut.source_partition))
    ]
    if problems:
        reason = (
            f"the way back cannot begin at the cut: {first_few(problems, most=3)}. Mirror back into topics "
            "of other names (--rename), without --from-certificate"
        )
        raise ConfigError(reason)
    return cuts


def _check_stopped(certificate: Certificate, cuts: Iterable[CutPartition], destination: Cluster) -> None:
    """Refuse to go back while the mirror of the cut-over runs: it would copy each record that returns."""
    group = certificate.mirror_group
    copied: set[TopicPartition] = set()
    with suppress(BrokerError, ProtocolError):  # not for this principal, or a group of others by now
        copied = {each for held in group_assignment(destination, group).values() for each in held}
    if still := sorted(copied & {cut.source_partition for cut in cuts}):
        reason = (
            f"the mirror of the cut-over still runs: group {group!r} on {destination} has a member that "
            f"copies {first_few(still)}. Stop it, since it would copy back each record that returns. If it "
            "was killed, wait for the end of its session"
        )
        raise ConfigError(reason)


def go_back(
    options: MirrorOptions, certificate: Certificate, group: str, membership: MemberId, *, patience_s: float
) -> list[TopicPartition]:
    """
    Commit the ends of a cut as the positions of partitions that have none since.

    Args:
        certificate: The certificate of the cut-over.
        group: The mirror's group, which the member holds.
        membership: The member that commits.
        patience_s: How long to retry transient errors.

    Returns:
        The partitions that got a position.

    Raises:
        ConfigError: The mirror is not the way back of this cut, or a partition has changed since.
        ShoalError: A cluster does not respond, or refuses a position.

    """
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        positions = GroupPositions(source, group, lambda: membership)
        rules = copy_rules(options.source)

        def begin() -> list[TopicPartition]:
            source.refresh()
            state = positions.read_state()
            cuts = _find(options, certificate, state, source, destination)
            if not cuts:
                return []
            before = _maps_before(certificate, state, cuts, destination, rules)
            # One producer that no partition knows for all, as tasks do it.
            producer = ProducerIdentity(*init_producer_id(destination))
            begun = {
                each: position_at_cut(cut, producer, rules, state.first_start, before.get(each))
                for each, cut in cuts.items()
            }
            for error in positions.commit(begun).values():
                raise error
            return sorted(begun)

        return patiently(begin, patience_s=patience_s)


def _maps_before(
    certificate: Certificate,
    state: GroupOffsets,
    cuts: Mapping[TopicPartition, CutPartition],
    destination: Cluster,
    rules: str,
) -> Mapping[TopicPartition, OffsetMap | None]:
    """Return the maps of the mirror's former life that still hold, by the partition that it reads."""
    lived = {each: cut for each, cut in cuts.items() if each in state.positions}
    if not lived:
        return {}
    positions = GroupPositions(destination, certificate.mirror_group, MemberId)
    try:
        between = positions.read([cut.source_partition for cut in lived.values()])
    except (BrokerError, ConfigError) as error:
        if is_transient(error):
            raise
        return {}  # not for this principal, or of another version of shoal
    return {
        each: map_before(cut, state.positions[each], between.get(cut.source_partition), rules)
        for each, cut in lived.items()
    }


def _logs(cluster: Cluster, cuts: Mapping[TopicPartition, CutLog]) -> Mapping[TopicPartition, FailbackLog]:
    """Return the logs of those partitions that exist; ``cuts`` are the logs at the cut."""
    known = cluster.metadata.topics
    present = [
        each for each in cuts if each.topic in known and each.partition in known[each.topic].partitions
    ]
    starts = answered(list_offsets(cluster, dict.fromkeys(present, EARLIEST)))
    shown = answered(list_offsets(cluster, dict.fromkeys(present, LATEST)))
    ends = known_log_ends(cluster, present)
    epochs = {each: cuts[each].leader_epoch for each in present if cuts[each].leader_epoch >= 0}
    epoch_ends = answered(epoch_end_offsets(cluster, epochs))
    found = {}
    for each in present:
        topic = known[each.topic]
        found[each] = FailbackLog(
            None if topic.topic_id is None else str(topic.topic_id),
            starts[each],
            max(shown[each], ends.get(each, 0)),
            epoch_ends.get(each),
        )
    return found
