"""
Find the stopped partitions that may continue after the incident that stands now (``shoal control``).

The option ``--continue-after`` holds for all topics and all later incidents. This is for one topic, and
once: the partition is handed to the next task with the kind that an operator accepts. As soon as it is
aligned again, or has stopped again, nothing is accepted any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import ConfigError
from ...topic_partition import TopicPartition
from ..model.incidents import POLICIES, IncidentKind
from ..monitoring.partition_metrics import PartitionMetrics

__all__ = ["read_kind", "stopped_by"]

_KINDS = {each.value: each for each in POLICIES}

_Partitions = Mapping[TopicPartition, PartitionMetrics]


def read_kind(name: str) -> IncidentKind:
    """Return the kind of an incident after which partitions may continue; raise ConfigError for others."""
    if name not in _KINDS:
        raise ConfigError(f"continue: {name!r} is not one of {', '.join(_KINDS)}")
    return _KINDS[name]


def stopped_by(kind: IncidentKind, name: str, known: _Partitions) -> list[TopicPartition]:
    """
    Return the partitions of a name that an incident of this kind stops, and that may continue.

    Args:
        name: A source topic, or one partition of it, as ``orders`` or ``orders-3``.
        known: All partitions of the mirror.

    Raises:
        ConfigError: The partition is unknown, no such incident stops it, or it is tried again already.

    """
    stopped = {each: row for each, row in _named(name, known).items() if row.stopped is not None}
    if not stopped:
        raise ConfigError(f"continue: {name!r} is not stopped")
    found = {each: row for each, row in stopped.items() if row.stopped_by is kind}
    if not found:
        raise ConfigError(
            f"continue: {name!r} is not stopped by {kind.value}, but by {_causes(stopped)}. No partition "
            "continues"
        )
    waiting = sorted(each for each, row in found.items() if not row.is_tried_again)
    if not waiting:
        raise ConfigError(
            f"continue: {name!r} is tried again already. Wait until it has continued or stopped"
        )
    return waiting


def _named(name: str, known: _Partitions) -> _Partitions:
    if of_topic := {each: row for each, row in known.items() if each.topic == name}:
        return of_topic
    number = re.fullmatch(r"(.+)-(\d{1,9})", name)
    partition = TopicPartition(number[1], int(number[2])) if number else None
    if partition is None or partition not in known:
        raise ConfigError(f"continue: the mirror has no topic and no partition {name!r}")
    return {partition: known[partition]}


def _causes(stopped: _Partitions) -> str:
    """Return the kinds that stop partitions, or the reason of one that no incident stops."""
    kinds = {each.stopped_by.value for each in stopped.values() if each.stopped_by is not None}
    if kinds:
        return ", ".join(sorted(kinds))
    reason = next(each.stopped.reason for each in stopped.values() if each.stopped is not None)
    return f"no incident: {reason}"
