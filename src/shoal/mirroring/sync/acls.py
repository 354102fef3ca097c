"""One round over the ACLs of mirrored topics: compare, and create what the destination lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...client.acls import AclBinding, PatternType, Resource, create_acls, describe_acls
from ...client.cluster import Cluster
from ...client.group_listing import list_groups
from ...errors import BrokerError
from ..model.follow_options import Follower, FollowOptions
from ..model.group_selection import GroupSelection
from .acl_drift import acl_drift, translate_acls

__all__ = ["AclsReport", "follow_acls"]


@dataclass(frozen=True, slots=True)
class AclsReport:
    """
    The outcome of a round.

    Attributes:
        missing: The ACLs that the destination did not have, denials first.
        surplus: The ACLs of copies that no ACL of the source asks for; shoal deletes none.
        created: The ACLs that were created in this round.
        refused: The error of each that the destination did not create.
        at_source: All ACLs of topics and groups at the source.
        at_destination: The same of the destination, before the round.

    """

    missing: tuple[AclBinding, ...]
    surplus: tuple[AclBinding, ...]
    created: tuple[AclBinding, ...] = ()
    refused: Mapping[AclBinding, BrokerError] = field(default_factory=dict)
    at_source: frozenset[AclBinding] = frozenset()
    at_destination: frozenset[AclBinding] = frozenset()

    @property
    def left(self) -> tuple[AclBinding, ...]:
        """The ACLs that are still missing."""
        created = frozenset(self.created)
        return tuple(each for each in self.missing if each not in created)


def follow_acls(
    source: Cluster,
    destination: Cluster,
    names: Mapping[str, str],
    own_group: str,
    follow: FollowOptions,
    selection: GroupSelection | None = None,
    *,
    compare_only: bool = False,
) -> AclsReport:
    """
    Compare the ACLs of mirrored topics and selected groups; create those missing if the options say so.

    A denial is created before any permission, and if one is refused, no permission follows.

    Args:
        names: The mirrored topics: their names at the destination, by those at the source.
        own_group: The mirror's group, which stays at the source.
        selection: The groups whose ACLs follow; None for none.
        compare_only: Whether to create nothing all the same.

    Raises:
        BrokerError: A cluster has no authorizer (SECURITY_DISABLED), or does not let this principal describe
            its ACLs.
        Disconnected: A cluster does not respond.

    """
    kept = follow.kept_acls
    here, there = _all_of(source), _all_of(destination)
    groups = () if selection is None else _selected_groups(source, here, selection, own_group)
    wanted = translate_acls(here, names, groups, kept)
    drift = acl_drift(wanted, there, frozenset(names.values()), kept)
    if compare_only or not follow.has(Follower.ACLS) or not drift.missing:
        return AclsReport(drift.missing, drift.surplus, at_source=here, at_destination=there)
    denials = [each for each in drift.missing if not each.allows]
    refused = create_acls(destination, denials)
    done = denials
    if not refused:
        permissions = [each for each in drift.missing if each.allows]
        refused = create_acls(destination, permissions)
        done = [*denials, *permissions]
    created = tuple(each for each in done if each not in refused)
    return AclsReport(drift.missing, drift.surplus, created, refused, here, there)


def _all_of(cluster: Cluster) -> frozenset[AclBinding]:
    return frozenset().union(*(describe_acls(cluster, resource) for resource in Resource))


def _selected_groups(
    source: Cluster, bindings: Collection[AclBinding], selection: GroupSelection, own_group: str
) -> frozenset[str]:
    """
    Return the selected groups: those that the source lists, and those that an ACL names.

    If a broker does not answer, its groups get their ACLs in a later round.
    """
    named = {
        each.name
        for each in bindings
        if each.resource is Resource.GROUP and each.pattern is PatternType.LITERAL
    }
    found = named.union(list_groups(source).groups)
    return frozenset(name for name in found if name != own_group and selection.matches(name))
