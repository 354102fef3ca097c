"""One round with clusters of its own, for ``shoal groups`` and ``shoal.translate_offsets()``."""

from __future__ import annotations

from functools import partial

from ...archive.groups import check_time
from ...client.cluster import Cluster
from ...errors import ConfigError
from ..model.copy_options import CopySettings
from ..model.options import MirrorOptions
from ..prepare.unmatched import select_topics
from .groups import GroupSync, OnGroups
from .prove import proofs
from .report import Direction, GroupsReport
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
    _check_archives(mirror, reverse=reverse)
    with Cluster(mirror.source) as source, Cluster(mirror.destination) as destination:
        # Asked at once: the address may be wrong.
        topics = select_topics(mirror.topics, source.refresh().topics, source)
        destination.refresh(topics.values())
        group = mirror.group_between(source.metadata.cluster_id, destination.metadata.cluster_id)
        settings = CopySettings.of(mirror, mirror.source, mirror.destination, group)
        direction = Direction.REVERSE if reverse else Direction.FORWARD
        sync = GroupSync(source, destination, settings, selection, direction=direction, with_lag=True)
        proof = proofs(source, destination, settings, direction) if prove else None
        attempt = partial(sync.round, topics, apply=apply, stable=apply, prove=proof, on_progress=on_progress)
        return settled(attempt, _PATIENCE_S)


def _check_archives(mirror: MirrorOptions, *, reverse: bool) -> None:
    is_archive = mirror.source.directory is not None
    if mirror.destination.directory is not None:
        raise ConfigError(
            f"--to {mirror.destination.servers!r} is a directory. shoal mirror --groups archives committed "
            "offsets"
        )
    if is_archive and reverse:
        raise ConfigError("--reverse has no meaning if --from is a directory: it has no consumers")
    if mirror.until is not None and (not is_archive or mirror.until.timestamp_ms is None):
        raise ConfigError(
            f"--until {mirror.until}: only the archived offsets of a time can be chosen. Use a time, and a "
            "directory for --from"
        )
    if is_archive:
        check_time(mirror.source.open_archive().store, mirror.source.groups_by_ms)
