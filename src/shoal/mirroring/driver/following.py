"""
Let configurations of topics and ACLs follow the records; without ``--sync-…`` only compare them.

Nothing of this may end a mirror: whatever a cluster refuses is a warning. If a comparison that no option
asks for fails, it has no result and warns of nothing: its reason may be a missing ACL, or no authorizer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping

from ...client.cluster import Cluster, is_transient
from ...errors import BrokerError, ErrorCode, ShoalError
from ..model.follow_options import FollowOptions, KeptAcls
from ..model.options import MirrorOptions
from ..model.text import first_few
from ..monitoring.followed import Followed, Follower, FollowRound
from ..sync.acls import AclsReport, sync_acls
from ..sync.configs import ConfigsReport, sync_configs
from .lookout import Lookout
from .schedule import PartitionSchedule

__all__ = ["Following", "compare_followers"]

#: Between two comparisons that no option asks for: they describe each topic.
_COMPARE_S = 300.0

_SENTENCES = 100


class Following(Lookout):
    """Compares both clusters at each look, and changes the destination as the options say."""

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
            options: The options of the mirror.
            group: The mirror's group; its ACLs stay at the source.
            schedule: The topics.
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
        return self._options.follow.sync_configs or self._options.follow.sync_acls is not None

    def look_at_once(self) -> None:
        """Look before the mirror copies."""
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            try:
                self.look(source, destination)
            except ShoalError as error:
                self._warn(f"{self.failure}{error}")

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Compare both clusters once."""
        names = _names_at_both(self._schedule.names, source, destination)
        follow = self._options.follow
        if names and self._is_due(Follower.CONFIGS, is_wanted=follow.sync_configs):
            self._look_at(
                Follower.CONFIGS,
                follow.sync_configs,
                lambda: self._configs(source, destination, names),
            )
        if names and self._is_due(Follower.ACLS, is_wanted=follow.sync_acls is not None):
            self._look_at(
                Follower.ACLS,
                follow.sync_acls is not None,
                lambda: self._acls(source, destination, names),
            )

    def _is_due(self, follower: Follower, *, is_wanted: bool) -> bool:
        now = time.monotonic()
        if is_wanted or now - self._compared_at.get(follower, -_COMPARE_S) >= _COMPARE_S:
            self._compared_at[follower] = now
            return True
        return False

    def _look_at(self, follower: Follower, is_wanted: bool, compare: Callable[[], FollowRound]) -> None:
        try:
            self._followed.set(follower, compare())
        except ShoalError as error:
            if is_wanted and is_transient(error):
                raise
            if is_wanted:
                self._warn(f"{follower.value} cannot follow: {_problem(error)}")

    def _configs(self, source: Cluster, destination: Cluster, names: Mapping[str, str]) -> FollowRound:
        follow = self._options.follow
        exclude = re.compile(follow.sync_configs_exclude)
        report = sync_configs(source, destination, names, exclude, apply=follow.sync_configs)
        for copy in sorted(report.applied):
            self._notify(f"topic {copy}: {_values(report.drift[copy])}, as at the source")
        for error in report.refused.values():
            self._warn(str(error))
        return _configs_round(report, is_synced=follow.sync_configs)

    def _acls(self, source: Cluster, destination: Cluster, names: Mapping[str, str]) -> FollowRound:
        kept = self._options.follow.sync_acls
        report = sync_acls(
            source, destination, names, self._group, kept or KeptAcls.READ, apply=kept is not None
        )
        if report.created:
            self._notify(f"ACLs created at the destination: {first_few(report.created)}")
        for error in report.refused.values():
            self._warn(str(error))
        return _acls_round(report, is_synced=kept is not None)


def compare_followers(
    follow: FollowOptions, group: str, source: Cluster, destination: Cluster, names: Mapping[str, str]
) -> Iterator[str]:
    """
    Compare both clusters, and change nothing.

    Args:
        follow: The options.
        group: The mirror's group.
        source: The source cluster.
        destination: The destination cluster.
        names: The topics that exist at both: their names at the destination, by those at the source.

    Yields:
        A sentence for each difference, and for each comparison that this principal may not make.

    """
    exclude = re.compile(follow.sync_configs_exclude)
    try:
        configs = sync_configs(source, destination, names, exclude, apply=False)
        yield from _configs_round(configs, is_synced=follow.sync_configs).sentences
    except ShoalError as error:
        yield f"{Follower.CONFIGS.value} are not compared: {_problem(error)}"
    kept = follow.sync_acls or KeptAcls.READ
    try:
        acls = sync_acls(source, destination, names, group, kept, apply=False)
        yield from _acls_round(acls, is_synced=follow.sync_acls is not None).sentences
    except ShoalError as error:
        if follow.sync_acls:
            yield f"{Follower.ACLS.value} are not compared: {_problem(error)}"


def _configs_round(report: ConfigsReport, *, is_synced: bool) -> FollowRound:
    """Return what is left to do after a round over configurations."""
    sentences = [
        f"topic {copy}: {_values(changes)} at the source" for copy, changes in sorted(report.left.items())
    ]
    sentences += [str(error) for error in report.refused.values()]
    return FollowRound(time.time(), is_synced, len(report.left), sentences[:_SENTENCES])


def _acls_round(report: AclsReport, *, is_synced: bool) -> FollowRound:
    """Return what is left to do after a round over ACLs."""
    sentences = [f"{each}: only at the source" for each in report.left]
    sentences += [f"{each}: only at the destination" for each in report.surplus]
    sentences += [str(error) for error in report.refused.values()]
    differing = len(report.left) + len(report.surplus)
    return FollowRound(time.time(), is_synced, differing, sentences[:_SENTENCES])


def _values(changes: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{name} has its default" if value is None else f"{name}={value}" for name, value in changes.items()
    )


def _names_at_both(names: Mapping[str, str], source: Cluster, destination: Cluster) -> dict[str, str]:
    """Return the topics that exist at both clusters now."""
    sources = source.refresh(names).topics
    copies = destination.refresh(names.values()).topics
    return {name: copy for name, copy in names.items() if name in sources and copy in copies}


def _problem(error: ShoalError) -> str:
    if not isinstance(error, BrokerError):
        return str(error)
    if error.code == ErrorCode.SECURITY_DISABLED:
        return f"{error.where} do not exist: it has no authorizer. Mirror without --sync-acls"
    if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return f"{error.where}: the user needs DESCRIBE on the cluster, and at the destination ALTER, too"
    return str(error)
