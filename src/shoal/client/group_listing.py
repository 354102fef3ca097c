"""The groups of a cluster: their types and states, from all brokers (ListGroups)."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import ShoalError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from .cluster import Cluster
from .connection import Connection

__all__ = ["EMPTY_STATES", "GroupListing", "GroupType", "ListedGroup", "list_groups"]

#: The states of a group without members. Brokers before Kafka 2.6 (ListGroups 4) send none.
EMPTY_STATES = frozenset({"Empty", "Dead", ""})

_STATES_FROM = 4

#: A description has all members with their subscriptions.
_DESCRIBED_AT_ONCE = 50


class GroupType(enum.Enum):
    """
    The protocol of a group's members, by Kafka's name (ListGroups 5, KIP-848).

    Brokers before Kafka 3.8 send none: their groups are classic ones.
    """

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, name: str) -> GroupType:
        """Return the type of this name, in any case."""
        try:
            return cls(name.lower() or "classic")
        except ValueError:
            return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """
    A group as its coordinator lists it.

    Attributes:
        type: The protocol of its members.
        protocol_type: ``consumer``, or that of another program (``connect``); empty if its offsets were
            committed without members.
        state: Kafka's name of its state, such as ``Empty``; empty if the broker sends none.

    """

    name: str
    type: GroupType
    protocol_type: str
    state: str

    @property
    def is_active(self) -> bool:
        """Whether the group has members, as far as its state shows."""
        return self.state not in EMPTY_STATES

    @property
    def commits_offsets(self) -> bool:
        """Whether members commit offsets of partitions, as consumers do."""
        if self.type is GroupType.CLASSIC:
            return self.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
        return self.type is GroupType.CONSUMER


@dataclass(frozen=True, slots=True)
class GroupListing:
    """
    All groups that the principal may describe.

    Attributes:
        groups: The groups by name.
        failures: The errors of brokers whose groups may be missing, by node id.

    """

    groups: Mapping[str, ListedGroup]
    failures: Mapping[int, ShoalError]


def list_groups(cluster: Cluster, *, with_states: bool = False) -> GroupListing:
    """
    List the groups of all brokers; the cluster remembers their coordinators.

    A coordinator that still loads its groups lists those it has, with an error. They are part of the result,
    and so is the error.

    Args:
        with_states: Whether to describe the groups of brokers that list no states (before Kafka 2.6).

    """
    groups: dict[str, ListedGroup] = {}
    failures: dict[int, ShoalError] = {}
    for node_id in list(cluster.metadata.brokers):
        try:
            connection = cluster.connection(node_id)
            response = connection.request(ApiKey.LIST_GROUPS)
            for each in response.groups:
                groups[each.group_id] = ListedGroup(
                    each.group_id, GroupType.of(each.group_type), each.protocol_type, each.group_state
                )
                cluster.remember_coordinator(each.group_id, node_id)
            if with_states and connection.version(ApiKey.LIST_GROUPS) < _STATES_FROM:
                for name, state in _states(connection, [each.group_id for each in response.groups]):
                    groups[name] = replace(groups[name], state=state)
            where = f"listing the groups of broker {node_id} of {cluster}"
            raise_for(response.error_code, where, right="DESCRIBE on the cluster")
        except ShoalError as error:
            failures[node_id] = error
    return GroupListing(groups, failures)


def _states(connection: Connection, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(names), _DESCRIBED_AT_ONCE):
        some = list(names[start : start + _DESCRIBED_AT_ONCE])
        described = connection.request(
            ApiKey.DESCRIBE_GROUPS, groups=some, include_authorized_operations=False
        ).groups
        for each in described:
            raise_for(each.error_code, f"describing group {each.group_id!r}")
            yield each.group_id, each.group_state
