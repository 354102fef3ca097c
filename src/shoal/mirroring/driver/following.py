"""
Let configurations of topics and ACLs follow the records; without ``--sync-…`` only compare them.

Nothing of this may end a mirror: whatever a cluster refuses is a warning. If a comparison that no option
asks for fails, it has no result and warns of nothing: its reason may be a missing ACL, or no authorizer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...client.cluster import Cluster, is_transient
from ...client.config import ClientConfig
from ...errors import BrokerError, ErrorCode, ShoalError, Stopped
from ..model.acls import THE_CLUSTER, Acl, grant_command
from ..model.follow_options import Follower, FollowOptions
from ..model.group_selection import GroupSelection
from ..model.options import MirrorOptions
from ..model.text import first_few
from ..monitoring.followed import Followed, FollowRound
from ..prepare.topic_configs import harm_sentence
from ..sync.acls import AclsReport, follow_acls
from ..sync.configs import ConfigsReport, follow_configs
from .lookout import Lookout
from .schedule import PartitionSchedule

__all__ = ["Following", "compare_followers"]

#: Between two comparisons that no option asks for: they describe each topic.
_COMPARE_S = 300.0

_SENTENCES = 100


class Following(Lookout):
    """Compares both clusters at each look, and changes the destination by the options."""

    failure = "configurations and ACLs cannot be compared: "

    def __init__(
        self,
        options: MirrorOptions,
        group: str,
        schedule: PartitionSchedule,
        followed: Followed,
        warn: Callable[[str], object],
        notify: Callable[[str], object],
    ) -> None:
        """
        Prepare the thread.

        Args:
            group: The mirror's group; its ACLs stay at the source.
            followed: Receives the last round of each kind.
            warn: A function that receives each warning once.
            notify: A function that receives what was changed.

        """
        super().__init__(options, warn)
        self._group = group
        self._schedule = schedule
        self._followed = followed
        self._notify = notify
        self._compared_at: dict[Follower, float] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether the options change anything at the destination."""
        return any(map(self._options.follow.has, Follower))

    def look_at_once(self) -> None:
        """Look before the mirror copies."""
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            try:
                self.look(source, destination)
            except Stopped:
                raise
            except ShoalError as error:
                self._warn(f"{self.failure}{error}")

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Compare both clusters once."""
        names = _names_at_both(self._schedule.names, source, destination)
        for follower, compare in ((Follower.CONFIGS, self._configs), (Follower.ACLS, self._acls)):
            if names and self._is_due(follower):
                self._look_at(follower, partial(compare, source, destination, names))

    def _is_due(self, follower: Follower) -> bool:
        now = time.monotonic()
        compared_at = self._compared_at.get(follower, -_COMPARE_S)
        if not self._options.follow.has(follower) and now - compared_at < _COMPARE_S:
            return False
        self._compared_at[follower] = now
        return True

    def _look_at(self, follower: Follower, compare: Callable[[], FollowRound]) -> None:
        try:
            self._followed.set(follower, compare())
        except Stopped:
            raise
        except ShoalError as error:
            if not self._options.follow.has(follower):
                return
            if is_transient(error):
                raise
            problem = _problem(error, self._options.source, self._options.destination)
            self._warn(f"{follower.value} cannot follow: {problem}")

    def _configs(self, source: Cluster, destination: Cluster, names: Mapping[str, str]) -> FollowRound:
        report = follow_configs(source, destination, names, self._options.follow)
        for copy in sorted(report.applied):
            self._notify(f"topic {copy}: {_values(report.drift[copy])}, as at the source")
        for error in report.refused.values():
            self._warn(str(error))
        if self._options.follow.has(Follower.CONFIGS):
            for name, values in report.harmful.items():
                self._warn(harm_sentence(name, values))
        return _configs_round(report, self._options.follow)

    def _acls(self, source: Cluster, destination: Cluster, names: Mapping[str, str]) -> FollowRound:
        selection = self._options.group_selection
        report = follow_acls(source, destination, names, self._group, self._options.follow, selection)
        if report.created:
            self._notify(f"ACLs created at the destination: {first_few(report.created)}")
        for error in report.refused.values():
            self._warn(str(error))
        return _acls_round(report, self._options.follow)


def compare_followers(
    follow: FollowOptions,
    group: str,
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    selection: GroupSelection | None = None,
) -> Iterator[str]:
    """
    Compare both clusters, and change nothing.

    Args:
        group: The mirror's group; its ACLs stay at the source.
        names: The topics that exist at both: their names at the destination, by those at the source.
        selection: The groups whose ACLs are compared; None for none.

    Yields:
        A sentence for each difference, and for each comparison that this principal may not make.

    """
    kinds: Mapping[Follower, Callable[[], FollowRound]] = {
        Follower.CONFIGS: lambda: _configs_round(
            follow_configs(source, destination, names, follow, compare_only=True), follow
        ),
        Follower.ACLS: lambda: _acls_round(
            follow_acls(source, destination, names, group, follow, selection, compare_only=True), follow
        ),
    }
    for follower, compare in kinds.items():
        try:
            yield from compare().sentences
        except ShoalError as error:
            if follower is Follower.CONFIGS or follow.has(follower):
                problem = _problem(error, source.config, destination.config)
                yield f"{follower.value} are not compared: {problem}"


def _configs_round(report: ConfigsReport, follow: FollowOptions) -> FollowRound:
    """Return what is left to do after a round over configurations."""
    sentences = [
        f"topic {copy}: {_values(changes)} at the source" for copy, changes in sorted(report.left.items())
    ]
    sentences += [str(error) for error in report.refused.values()]
    return FollowRound(time.time(), follow.has(Follower.CONFIGS), len(report.left), sentences[:_SENTENCES])


def _acls_round(report: AclsReport, follow: FollowOptions) -> FollowRound:
    """Return what is left to do after a round over ACLs."""
    sentences = [f"{each}: only at the source" for each in report.left]
    sentences += [f"{each}: only at the destination" for each in report.only_there]
    sentences += [str(error) for error in report.refused.values()]
    differing = len(report.left) + len(report.only_there)
    return FollowRound(time.time(), follow.has(Follower.ACLS), differing, sentences[:_SENTENCES])


def _values(changes: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{name} has its default" if value is None else f"{name}={value}" for name, value in changes.items()
    )


def _names_at_both(names: Mapping[str, str], source: Cluster, destination: Cluster) -> dict[str, str]:
    """Return the topics that exist at both clusters now."""
    sources = source.refresh(names).topics
    copies = destination.refresh(names.values()).topics
    return {name: copy for name, copy in names.items() if name in sources and copy in copies}


def _problem(error: ShoalError, source: ClientConfig, destination: ClientConfig) -> str:
    if not isinstance(error, BrokerError):
        return str(error)
    if error.code == ErrorCode.SECURITY_DISABLED:
        return f"{error.where} do not exist: it has no authorizer. Mirror without --sync-acls"
    if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        needed = (
            (Acl("source", "cluster", THE_CLUSTER, "DESCRIBE"), source),
            (Acl("destination", "cluster", THE_CLUSTER, "ALTER"), destination),
        )
        return (
            f"{error.where}: the user needs DESCRIBE on the cluster, and at the destination ALTER, too. "
            f"As an administrator: {' && '.join(grant_command(*each) for each in needed)}"
        )
    return str(error)
