"""One round over the configurations of mirrored topics: compare, and change those of the copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...client.admin import alter_topic_configs, describe_topic_configs
from ...client.cluster import Cluster
from ...errors import BrokerError
from ..model.follow_options import Follower, FollowOptions
from ..prepare.topic_configs import harmful_values
from .config_drift import config_drift

__all__ = ["ConfigsReport", "follow_configs"]


@dataclass(frozen=True, slots=True)
class ConfigsReport:
    """
    The outcome of a round.

    Attributes:
        drift: For each copy that differs the values that it should have, by name; None for a default.
        applied: The copies that got these values in this round.
        refused: The error of each copy that the destination did not change.
        harmful: For each source topic the values that its copy does not get, since it could not be written.

    """

    drift: Mapping[str, Mapping[str, str | None]]
    applied: frozenset[str] = frozenset()
    refused: Mapping[str, BrokerError] = field(default_factory=dict)
    harmful: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def left(self) -> Mapping[str, Mapping[str, str | None]]:
        """The drift that is still there."""
        return {copy: changes for copy, changes in self.drift.items() if copy not in self.applied}


def follow_configs(
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    follow: FollowOptions,
    *,
    compare_only: bool = False,
) -> ConfigsReport:
    """
    Compare the configurations of all topics with those of their copies, which get them if the options say so.

    Args:
        names: The topics that exist at both: their names at the destination, by those at the source.
        compare_only: Whether to write nothing all the same.

    Raises:
        BrokerError: A cluster does not let this principal describe a topic.
        Disconnected: A cluster does not respond.
        ProtocolError: The destination is older than Kafka 2.3, and cannot change single values.

    """
    wanted = describe_topic_configs(source, names)
    present = describe_topic_configs(destination, names.values())
    drift = {
        copy: changes
        for name, copy in sorted(names.items())
        if (changes := config_drift(wanted[name], present[copy], follow.excluded_configs))
    }
    harmful = {name: found for name in sorted(names) if (found := harmful_values(wanted[name]))}
    if compare_only or not follow.has(Follower.CONFIGS) or not drift:
        return ConfigsReport(drift, harmful=harmful)
    refused = alter_topic_configs(destination, drift)
    return ConfigsReport(drift, frozenset(drift.keys() - refused.keys()), refused, harmful)
