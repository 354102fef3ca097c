"""
One round with clusters of its own, for ``shoal groups`` and ``shoal.translate_offsets()``.

``--prove`` reads the record that a consumer reads next, at both clusters, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import closing
from functools import cache, partial
from typing import NamedTuple

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.scan import read_decided
from ...errors import ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.offset_map import Exactness
from ..model.options import MirrorOptions
from ..prepare.unmatched import select_topics
from .groups import GroupSync, OnGroups
from .report import Direction, GroupOffset, GroupsReport, OffsetProof
from .selected import settled

__all__ = ["translate_offsets"]

_PATIENCE_S = 30.0


def translate_offsets(
    mirror: MirrorOptions,
    *,
    apply: bool = False,
    reverse: bool = False,
    prove: bool = False,
    on_progress: OnGroups = lambda *_: None,
) -> GroupsReport:
    """
    Translate the committed offsets of consumer groups once, to the other cluster of a mirror.

    The mirror may run meanwhile, and need not. Without ``apply`` nothing is written.

    Args:
        mirror: The options of the mirror whose positions translate the offsets, and ``groups``. With
            ``until`` and a directory as the source, the archived offsets of a time.
        apply: Whether to commit the translations.
        reverse: Whether to translate from the destination back to the source.
        prove: Whether to read and compare the next record at both clusters.
        on_progress: Called with ``proving`` or ``committing``, the groups that are done, and all of them.

    Returns:
        The report. Each of its ``groups`` has a ``name``, ``offsets``, and a ``problem`` if it has none. An
        offset has ``partition``, ``committed``, ``counterpart``, ``translated``, ``exactness``, ``action``
        and ``detail``. The ``value`` of an exactness or an action is the word in the table of the verb.
        ``report.to_json_object()`` has the values of ``--json``.

    Raises:
        ConfigError: No topic matches, or an option does not fit to an archive.
        ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

    Examples:
        >>> import shoal
        >>> mirror = shoal.MirrorOptions("localhost:9092", "localhost:9192", "orders", groups="billing")
        >>> report = shoal.translate_offsets(mirror)
        >>> [(each.partition, each.translated) for each in report.offsets]
        []

    """
    selection = mirror.group_selection
    if selection is None:
        raise ConfigError("--groups is required: a regular expression of consumer groups")
    until = mirror.until
    given = {
        "shoal groups": True,
        "--reverse": reverse,
        "shoal groups --until": until is not None,
        "shoal groups --until OFFSET": until is not None and until.timestamp_ms is None,
    }
    mirror.destination.check_options("--to", given)
    mirror.source.check_options("--from", given)
    with Cluster(mirror.source) as source, Cluster(mirror.destination) as destination:
        # Asked at once: the address may be wrong.
        topics = select_topics(mirror.topics, source.refresh().topics, source)
        mirror.source.check_archived_groups(topics)
        destination.refresh(topics.values())
        group = mirror.group_between(source.metadata.cluster_id, destination.metadata.cluster_id)
        settings = CopySettings.of(mirror, mirror.source, mirror.destination, group)
        direction = Direction.REVERSE if reverse else Direction.FORWARD
        sync = GroupSync(source, destination, settings, selection, direction=direction, with_lag=True)
        proof = proofs(source, destination, settings, direction) if prove else None
        attempt = partial(sync.round, topics, apply=apply, stable=apply, prove=proof, on_progress=on_progress)
        return settled(attempt, _PATIENCE_S)


_BUFFER_BYTES = 1024 * 1024


class _Next(NamedTuple):
    """
    The next record that a consumer reads from an offset on.

    Attributes:
        times: Its timestamps: the create time, and the append time, which a mirror may keep.

    """

    offset: int
    body: bytes
    times: Set[int | None]


def proofs(
    source: Cluster, destination: Cluster, settings: CopySettings, direction: Direction
) -> Callable[[GroupOffset], OffsetProof | None]:
    """
    Return a function that proves one translation; it returns None for an offset without one.

    Args:
        source: The source cluster of the mirror, with metadata of its topics by the first proof.
        destination: Its destination cluster, with metadata of the copies by the first proof.
        settings: The mirror's settings, which decide which records it copies.
        direction: From which cluster the offsets were read.

    """
    own = settings.source.isolation_level

    @cache  # many groups have the same offset
    def next_record(
        cluster: Cluster, level: IsolationLevel, partition: TopicPartition, offset: int
    ) -> _Next | ShoalError | None:
        try:
            with closing(read_decided(cluster, partition, offset, level, _BUFFER_BYTES)) as batches:
                for decision, batch in batches:
                    for record in () if decision.is_drop else settings.records_to_mirror(batch, offset):
                        times = {record.timestamp, batch.header.append_time}
                        return _Next(record.offset, bytes(record.body), times - {None})
        except ShoalError as error:
            return error
        return None

    def proof(offset: GroupOffset) -> OffsetProof | None:
        if offset.counterpart is None or offset.translated is None:
            return None
        here, there = (offset.partition, offset.committed), (offset.counterpart, offset.translated)
        at_source, at_destination = (here, there) if direction is Direction.FORWARD else (there, here)
        found = None
        # A mirror writes no aborted records. But where producers have run at the destination, before a cut,
        # there are theirs, which no record at the source equals.
        for level in dict.fromkeys((IsolationLevel.READ_UNCOMMITTED, own)):
            both = next_record(source, own, *at_source), next_record(destination, level, *at_destination)
            ours, theirs = both if direction is Direction.FORWARD else both[::-1]
            again = _compared(ours, theirs, offset.exactness)
            if again.is_same:
                return again
            found = found or again
        return found

    return proof


def _compared(
    ours: _Next | ShoalError | None, theirs: _Next | ShoalError | None, exactness: Exactness | None
) -> OffsetProof:
    for each in (ours, theirs):
        if isinstance(each, ShoalError):
            return OffsetProof(None, f"a record cannot be read: {each}")
    if isinstance(ours, _Next) and isinstance(theirs, _Next):
        found = f"the next records are those of offsets {ours.offset} and {theirs.offset}"
        if ours.body == theirs.body and ours.times & theirs.times:
            return OffsetProof(True, found)
        if exactness is Exactness.EXACT:
            return OffsetProof(False, found)
        return OffsetProof(None, f"{found}: records may be read twice")
    if ours is theirs:
        return OffsetProof(True, "no record follows at either cluster")
    if exactness is Exactness.AHEAD or theirs is None:
        return OffsetProof(None, "the next record is not mirrored yet")
    return OffsetProof(exactness is not Exactness.EXACT or None, "the next record is at one cluster only")
