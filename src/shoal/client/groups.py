"""The groups of a cluster from outside: their types and states, their members, and who holds one."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Disconnected, ProtocolError, ShoalError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment, decode_subscription
from ..topic_partition import TopicPartition
from .cluster import Cluster, is_transient
from .connection import Connection
from .coordinator import COORDINATOR_MOVED, ask_coordinator, raise_for_group

__all__ = [
    "EMPTY_STATES",
    "GroupListing",
    "GroupType",
    "ListedGroup",
    "describe_holder",
    "descriptions",
    "group_assignment",
    "has_coordinator",
    "list_groups",
]

#: The prefix of a shoal member's description in the user data: other clients' assignors use these for data.
_DESCRIPTION_PREFIX = "shoal"

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

    @property
    def may_list_more(self) -> bool:
        """Whether a broker failed for a reason that may pass: its coordinator loads, or does not answer."""
        return any(is_transient(each) for each in self.failures.values())


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
            failures[node_id] = cluster.config.problem_of(None) or error
    return GroupListing(groups, failures)


def _states(connection: Connection, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(names), _DESCRIBED_AT_ONCE):
        some = list(names[start : start + _DESCRIBED_AT_ONCE])
        for each in connection.request(ApiKey.DESCRIBE_GROUPS, groups=some).groups:
            raise_for(each.error_code, f"describing group {each.group_id!r}")
            yield each.group_id, each.group_state


def describe_holder(cluster: Cluster, group: str) -> str | None:
    """
    Return a phrase with the members of a group for a message; None if there are none.

    A mirror describes itself in its subscription, and the phrase contains that. If a static member joins
    again from another process, the broker keeps the client id and the address of the first process
    (``replaceStaticMember``). Only the subscription is new.
    """
    response = ask_coordinator(cluster, group, ApiKey.DESCRIBE_GROUPS, groups=[group])
    members = [member for described in response.groups for member in described.members]
    if not members:
        return None
    return " and ".join(
        _own_description(bytes(each.member_metadata))
        or f"client {each.client_id!r} at {each.client_host.lstrip('/')}"
        for each in members
    )


def _own_description(subscription: bytes) -> str | None:
    """Return the description of a shoal member in its user data; None for other clients."""
    try:
        user_data = decode_subscription(subscription).user_data or b""
        text = user_data.decode("utf-8")
    except (ProtocolError, UnicodeDecodeError):
        return None
    return text if text.startswith(_DESCRIPTION_PREFIX) and text.isprintable() else None


def group_assignment(cluster: Cluster, group: str) -> dict[str, list[TopicPartition]]:
    """
    Return the assignment of each member of a consumer group, by member id.

    Members receive only their own assignment, so the whole one needs DescribeGroups. It is empty while the
    group rebalances.

    """
    response = ask_coordinator(cluster, group, ApiKey.DESCRIBE_GROUPS, groups=[group])
    assignment: dict[str, list[TopicPartition]] = {}
    for described in response.groups:
        raise_for_group(cluster, group, described.error_code, "reading the members")
        for member in described.members:
            partitions = decode_assignment(bytes(member.member_assignment))
            assignment[member.member_id] = [TopicPartition(*each) for each in partitions]
    return assignment


def descriptions(cluster: Cluster, group: str, *, with_operations: bool = False) -> Iterator[Any]:
    """
    Yield each broker's description of a group; None for a broker that does not answer.

    FindCoordinator, which the other functions use, makes a broker create ``__consumer_offsets``. This
    function does not.

    Args:
        with_operations: Whether a description has the allowed operations.

    """
    for node_id in cluster.metadata.brokers:
        try:
            response = cluster.connection(node_id).request(
                ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=with_operations
            )
        except Disconnected:
            yield None
        else:
            yield from response.groups


def has_coordinator(cluster: Cluster, group: str) -> bool:
    """
    Return whether any broker coordinates a group; if none does, the cluster has no groups yet.

    If a broker does not answer, it may be the coordinator. See :func:`descriptions`.

    Raises:
        BrokerError: This principal may not describe the group.

    """
    silent = False
    for described in descriptions(cluster.keeper, group):
        if described is None:
            silent = True
        elif described.error_code not in COORDINATOR_MOVED:
            raise_for(described.error_code, f"group {group!r} on {cluster.keeper}")
            return True
    return silent
