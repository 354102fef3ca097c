"""
Let configurations of topics and ACLs follow the records; without ``--sync`` only compare them.

Nothing of this may end a mirror: whatever a cluster refuses is a warning. If a comparison that no option
asks for fails, it has no result and warns of nothing: its reason may be a missing ACL, or no authorizer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

from ...client.cluster import Cluster, is_transient
from ...errors import BrokerError, ErrorCode, ShoalError, Stopped
from ..model.follow_options import Follower
from ..model.options import MirrorOptions
from ..model.state import FollowRound
from ..sync.acls import follow_acls
from ..sync.configs import follow_configs
from ..sync.follow_report import FollowReport, at_both
from .lookout import Watch
from .schedule import Running

__all__ = ["Following", "compare_followers"]

#: Between two comparisons that no option asks for: they describe each topic.
_COMPARE_S = 300.0

_SENTENCES = 100


class Following(Watch):
    """Compares both clusters at each look, and changes the destination by the options."""

    failure = "configurations and ACLs cannot be compared: "

    def __init__(self, mirror: Running) -> None:
        """Prepare the first look."""
        super().__init__(mirror)
        self._compared_at: dict[Follower, float] = {}

    def look_at_once(self) -> None:
        """Look before the mirror copies."""
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            try:
                source.refresh(self._schedule.names)
                self.look(source, destination)
            except Stopped:
                raise
            except ShoalError as error:
                self._warn(f"{self.failure}{error}")

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Compare both clusters, if it is time."""
        due = [each for each in Follower if self._is_due(each)]
        if not due:
            return  # before anything is asked: the metadata of thousands of partitions cost CPU
        names = self._schedule.names
        destination.refresh(names.values())
        if names := at_both(names, source, destination):
            for follower in due:
                self._compared_at[follower] = time.monotonic()
                self._look_at(follower, source, destination, names)

    def _is_due(self, follower: Follower) -> bool:
        compared_at = self._compared_at.get(follower, -math.inf)
        return self._options.has(follower) or time.monotonic() - compared_at >= _COMPARE_S

    def _look_at(
        self, follower: Follower, source: Cluster, destination: Cluster, names: Mapping[str, str]
    ) -> None:
        follow = self._options
        try:
            changes = follow.has(follower)
            report = _report(
                follower, follow, self._mirror.group, source, destination, names, changes=changes
            )
        except Stopped:
            raise
        except ShoalError as error:
            if not follow.has(follower):
                return
            if is_transient(error):
                raise
            self._warn(f"{follower.value} cannot follow: {_problem(error)}")
            return
        for change in report.changes:
            self._mirror.notify(change)
        refused = [*map(str, report.refused)]
        for sentence in (*refused, *(report.warnings if follow.has(follower) else ())):
            self._warn(sentence)
        sentences = [*report.differences, *refused][:_SENTENCES]
        done = FollowRound(time.time(), follow.has(follower), len(report.differences), sentences)
        self._mirror.metrics.followed[follower] = done


def _report(
    follower: Follower,
    options: MirrorOptions,
    group: str,
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    *,
    changes: bool,
) -> FollowReport:
    if follower is Follower.CONFIGS:
        return follow_configs(source, destination, names, changes=changes)
    selection = options.group_selection
    return follow_acls(source, destination, names, group, options, selection, changes=changes)


def compare_followers(
    options: MirrorOptions,
    group: str,
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
) -> Iterator[str]:
    """
    Compare both clusters, and change nothing.

    Args:
        group: The mirror's group; its ACLs stay at the source.
        names: The topics that exist at both: their names at the destination, by those at the source.

    Yields:
        A sentence for each difference, and for each comparison that this principal may not make.

    """
    for follower in Follower:
        try:
            report = _report(follower, options, group, source, destination, names, changes=False)
            yield from report.differences[:_SENTENCES]
        except ShoalError as error:
            if follower is Follower.CONFIGS or options.has(follower):
                yield f"{follower.value} are not compared: {_problem(error)}"


def _problem(error: ShoalError) -> str:
    if isinstance(error, BrokerError) and error.code == ErrorCode.SECURITY_DISABLED:
        return f"{error.where} do not exist: it has no authorizer. Mirror without --sync acls"
    return str(error)
