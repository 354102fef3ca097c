"""One round with clusters of its own, for ``shoal groups`` and ``shoal.translate_offsets()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ... import kinds
from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...declare import option
from ...errors import ConfigError
from ..model.copy_options import CopySettings
from ..model.group_selection import GroupSelection
from ..model.options import MirrorOptions
from ..model.topics import TopicSelection
from ..model.window import Until
from ..prepare.unmatched import why_nothing_matches
from .groups import GroupSync
from .prove import proofs
from .report import Direction, GroupsReport
from .selected import settled

__all__ = ["GroupsOptions", "translate_groups", "translate_offsets"]

_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class GroupsOptions:
    """
    The options of one round.

    Attributes:
        mirror: The options of the mirror whose positions translate the offsets.
        selection: The groups.

    """

    mirror: MirrorOptions
    selection: GroupSelection
    apply: bool = option(kinds.FLAG, "commit the translated offsets", default=False, group="consumer groups")
    reverse: bool = option(
        kinds.FLAG,
        "read the groups of the destination, and translate their offsets back to the source",
        default=False,
        group="consumer groups",
    )
    prove: bool = option(
        kinds.FLAG,
        "read the record that a consumer reads next at both clusters, and compare the two",
        default=False,
        group="consumer groups",
    )


def translate_groups(options: GroupsOptions) -> GroupsReport:
    """
    Translate the committed offsets of groups once, with or without a running mirror.

    Raises:
        ConfigError: No topic matches, or an option does not fit to an archive.
        ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

    """
    _check_archives(options)
    mirror = options.mirror
    with Cluster(mirror.source) as source, Cluster(mirror.destination) as destination:
        found = source.refresh().topics  # at once: the address may be wrong
        topics = mirror.topics.select(found)
        if not topics:
            raise ConfigError(why_nothing_matches(mirror.topics, found, str(source)))
        destination.refresh(topics.values())
        group = mirror.group_between(source.metadata.cluster_id, destination.metadata.cluster_id)
        settings = CopySettings.of(mirror, mirror.source, mirror.destination, group)
        direction = Direction.REVERSE if options.reverse else Direction.FORWARD
        sync = GroupSync(
            source,
            destination,
            settings,
            options.selection,
            direction=direction,
            with_lag=True,
        )
        prove = proofs(source, destination, settings, direction) if options.prove else None
        return settled(
            partial(sync.round, topics, apply=options.apply, stable=options.apply, prove=prove), _PATIENCE_S
        )


def _check_archives(options: GroupsOptions) -> None:
    mirror = options.mirror
    is_archive = mirror.source.directory is not None
    if mirror.destination.directory is not None:
        raise ConfigError(
            f"--to {mirror.destination.servers!r} is a directory. shoal mirror --groups archives committed "
            "offsets"
        )
    if is_archive and options.reverse:
        raise ConfigError("--reverse has no meaning if --from is a directory: it has no consumers")
    if mirror.until is not None and (not is_archive or mirror.until.timestamp_ms is None):
        raise ConfigError(
            f"--until {mirror.until}: only the archived offsets of a time can be chosen. Use a time, and a "
            "directory for --from"
        )


def translate_offsets(
    source: str | Mapping[str, str],
    destination: str | Mapping[str, str],
    topics: str,
    groups: str,
    *,
    exclude: str | None = None,
    rename: str | None = None,
    group: str | None = None,
    apply: bool = False,
    reverse: bool = False,
    prove: bool = False,
    until: str | int | None = None,
    on_warning: Callable[[str], object] | None = None,
) -> GroupsReport:
    """
    Translate the committed offsets of consumer groups to the other cluster of a mirror.

    The mirror may run meanwhile, and need not. Without ``apply`` nothing is written.

    Args:
        source: ``HOST:PORT[,HOST:PORT…]``, the properties of a Java client, or the directory of an archive.
        destination: As ``source``, but no directory.
        topics: This and the others up to ``until`` are the options of ``shoal groups`` (docs/cli.md).
        groups: A regular expression that matches whole names of consumer groups.
        exclude: Topics to leave out.
        rename: Names of the topics at the destination.
        group: The mirror's group on the source cluster.
        apply: Whether to commit the translations.
        reverse: Whether to translate from the destination back to the source.
        prove: Whether to read and compare the next record at both clusters.
        until: The time whose archived offsets are translated.
        on_warning: A function that receives warnings as sentences.

    Returns:
        The report. Each of its ``groups`` has a ``name``, ``offsets``, and a ``problem`` if it has none. An
        offset has ``partition``, ``committed``, ``counterpart``, ``translated``, ``exactness``, ``action``
        and ``detail``. The ``value`` of an exactness or an action is the word in the table of the verb.
        ``report.to_json_object()`` has the values of ``--json``.

    Raises:
        ConfigError: An option cannot be used, or no topic matches.
        ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

    Examples:
        >>> import shoal
        >>> report = shoal.translate_offsets("localhost:9092", "localhost:9192", "orders", "billing")
        >>> [(each.partition, each.translated) for group in report.groups for each in group.offsets]
        []

    """
    mirror = MirrorOptions(
        ClientConfig.given("source", source, on_warning),
        ClientConfig.given("destination", destination, on_warning),
        TopicSelection(topics, exclude, rename),
        group=group,
        until=None if until is None else Until.parse("until", until),
    )
    selection = GroupSelection(groups)
    report = translate_groups(GroupsOptions(mirror, selection, apply=apply, reverse=reverse, prove=prove))
    for warning in report.warnings:
        if on_warning:
            on_warning(warning)
    return report
