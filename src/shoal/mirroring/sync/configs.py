"""
The topic configurations in which copies differ from their sources, and one round that changes the copies.

A copy has the values that are set on its source topic. Four values decide how long records stay and which
batches are taken (:data:`~shoal.mirroring.prepare.topic_configs.COPIED_ALWAYS`): of these a copy has what is
in force at the source, be it set there or a broker's default. A value that is set on the copy alone returns
to the destination's default.

``KEPT_CONFIGS`` names the values that stay: the destination's own policy decides about them.
``compression.type`` always stays: any value but ``producer`` makes the destination's brokers recompress.
So does a value whose counterpart at the source would make the copy unwritable
(:func:`~shoal.mirroring.prepare.topic_configs.harmful_values`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...client.admin import ConfigEntry, alter_topic_configs, describe_topic_configs
from ...client.cluster import Cluster
from ..model.follow_options import KEPT_CONFIGS
from ..prepare.topic_configs import COPIED_ALWAYS, harm_sentence, harmful_values
from .follow_report import FollowReport

__all__ = ["config_drift", "follow_configs"]

_NEVER = re.compile(r"compression\..*")

Configs = Mapping[str, ConfigEntry]


def _values(changes: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{name} has its default" if value is None else f"{name}={value}" for name, value in changes.items()
    )


def follow_configs(
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    *,
    changes: bool,
) -> FollowReport:
    """
    Compare the configurations of all topics with those of their copies, which may get them.

    Args:
        names: The topics that exist at both: their names at the destination, by those at the source.
        changes: Whether to change the copies.

    Raises:
        BrokerError: A cluster does not let this principal describe a topic.
        Disconnected: A cluster does not respond.
        ProtocolError: The destination is older than Kafka 2.3, and cannot change single values.

    """
    wanted = describe_topic_configs(source, names)
    present = describe_topic_configs(destination, names.values())
    drift = {
        copy: values
        for copy, name in sorted((copy, name) for name, copy in names.items())
        if (values := config_drift(wanted[name], present[copy]))
    }
    refused = alter_topic_configs(destination, drift) if changes and drift else {}
    done = [copy for copy in drift if changes and copy not in refused]
    return FollowReport(
        [f"topic {copy}: {_values(drift[copy])}, as at the source" for copy in done],
        [f"topic {copy}: {_values(drift[copy])} at the source" for copy in drift if copy not in done],
        list(refused.values()),
        [harm_sentence(name, found) for name in sorted(names) if (found := harmful_values(wanted[name]))],
    )


def config_drift(source: Configs, destination: Configs) -> dict[str, str | None]:
    """
    Return what to change at the destination, so that a copy has its source's configuration.

    Args:
        source: The topic's configurations, with the defaults.
        destination: Those of the copy. A name that its brokers do not have is left out.

    Returns:
        The new values by name, sorted; None for the destination's default.

    """
    changes: dict[str, str | None] = {}
    harmful = harmful_values(source)
    for name, present in sorted(destination.items()):
        if KEPT_CONFIGS.fullmatch(name) or _NEVER.fullmatch(name):
            continue
        wanted = source.get(name)
        if name in harmful:
            # The copy keeps what an operator has set there instead.
            continue
        if wanted is not None and (wanted.set_on_topic or name in COPIED_ALWAYS):
            if wanted.value != present.value:
                changes[name] = wanted.value
        elif present.set_on_topic:
            changes[name] = None
    return changes
