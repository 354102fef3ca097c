r"""
The ACLs that a mirror needs on each side, and no others, for a principal of any name.

They follow from the requests that the mirror sends, by "Operations and Resources on Protocols" in Kafka's
security documentation. For Kafka's authorizers READ, WRITE and ALTER imply DESCRIBE, so only groups that the
mirror reads (``--groups``, ``--from-certificate``) need DESCRIBE alone. ALTER_CONFIGS implies
DESCRIBE_CONFIGS.

| at the source | asks for |
|---|---|
| Metadata, ListOffsets, OffsetForLeaderEpoch | DESCRIBE on the topic |
| Fetch | READ on the topic |
| DescribeConfigs | DESCRIBE_CONFIGS on the topic |
| FindCoordinator, DescribeGroups, OffsetFetch | DESCRIBE on the group (and the topic) |
| JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit | READ on the group (and the topic) |
| ListGroups, OffsetFetch of the consumer groups that follow | DESCRIBE on these groups |

| at the destination | asks for |
|---|---|
| Metadata, ListOffsets, OffsetForLeaderEpoch | DESCRIBE on the topic |
| Fetch and DescribeProducers, to see what is there already | READ on the topic |
| Produce | WRITE on the topic |
| InitProducerId | WRITE on any topic; before Kafka 2.8 IDEMPOTENT_WRITE on the cluster |
| DescribeConfigs | DESCRIBE_CONFIGS on the topic, and on the cluster for its brokers |
| CreateTopics | CREATE on the topic |
| CreatePartitions | ALTER on the topic |
| ListGroups, OffsetFetch, OffsetCommit of the consumer groups that follow | READ on these groups |
| DescribeGroups, OffsetFetch, with ``--from-certificate`` | DESCRIBE on the group of the first mirror |
| IncrementalAlterConfigs, with ``--sync configs`` | ALTER_CONFIGS on the topic |

With ``--sync acls``, DescribeAcls asks for DESCRIBE on both clusters, and CreateAcls for ALTER on the
destination's.

ACLs are by prefix if an expression such as ``shop\..*`` selects topics: it also selects those that are
created later.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...client.config import ClientConfig
from .follow_options import NOTHING_FOLLOWS, Follower, FollowOptions
from .topics import TopicSelection

__all__ = [
    "THE_CLUSTER",
    "Acl",
    "acl_commands",
    "acl_sentences",
    "acls_on",
    "by_prefix",
    "grant_command",
    "needed_acls",
    "prefixes_of",
    "principal_of",
]

#: Kafka's name of the one resource of the type cluster.
THE_CLUSTER = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class Acl:
    """
    One operation that the mirror's principal needs.

    Attributes:
        cluster: ``source`` or ``destination``.
        resource_type: ``topic``, ``group`` or ``cluster``.
        operation: Kafka's name of it, as ``READ``.
        is_prefix: Whether it is for all resources whose names begin with this one.

    """

    cluster: str
    resource_type: str
    resource: str
    operation: str
    is_prefix: bool = False

    @property
    def right(self) -> str:
        """The operation and its resource, as ``READ on topic orders``."""
        is_cluster = self.resource_type == "cluster"
        resource = f"the {self.cluster} cluster" if is_cluster else f"{self.resource_type} {self.resource}"
        return f"{self.operation} on {resource}"


def needed_acls(
    names: Mapping[str, str],
    group: str,
    *,
    created: Collection[str],
    grown: Collection[str],
    before_2_8: bool,
    follow: FollowOptions = NOTHING_FOLLOWS,
    consumer_groups: Collection[str] = (),
    first_mirror_group: str | None = None,
) -> tuple[Acl, ...]:
    """
    Return the ACLs that a mirror needs.

    Args:
        names: The topics at the destination, by their names at the source.
        group: The consumer group on the source cluster.
        created: The topics at the destination that it has to create.
        grown: Those that it adds partitions to.
        before_2_8: Whether the destination's brokers require IDEMPOTENT_WRITE.
        follow: The options for what follows the records.
        consumer_groups: The groups whose committed offsets follow the records.
        first_mirror_group: The group of the mirror that led to a cut-over, if this one goes back from it.

    """
    configs = "ALTER_CONFIGS" if follow.has(Follower.CONFIGS) else "DESCRIBE_CONFIGS"
    acls = acls_on("source", "topic", names, "READ", "DESCRIBE_CONFIGS")
    acls += acls_on("source", "group", [group], "READ")
    acls += acls_on("source", "group", consumer_groups, "DESCRIBE")
    for copy in names.values():
        more = ["CREATE"] * (copy in created) + ["ALTER"] * (copy in grown)
        acls += acls_on("destination", "topic", [copy], "WRITE", "READ", configs, *more)
    acls += acls_on("destination", "cluster", [THE_CLUSTER], "DESCRIBE_CONFIGS")
    acls += acls_on("destination", "group", consumer_groups, "READ")
    if first_mirror_group is not None:
        acls += acls_on("destination", "group", [first_mirror_group], "DESCRIBE")
    if before_2_8:
        acls += acls_on("destination", "cluster", [THE_CLUSTER], "IDEMPOTENT_WRITE")
    if follow.has(Follower.ACLS):
        acls += acls_on("source", "cluster", [THE_CLUSTER], "DESCRIBE")
        acls += acls_on("destination", "cluster", [THE_CLUSTER], "ALTER")
    return tuple(acls)


def acls_on(cluster: str, resource_type: str, resources: Iterable[str], *operations: str) -> list[Acl]:
    """Return the ACLs of all of some operations on each of some resources."""
    return [Acl(cluster, resource_type, name, each) for name in resources for each in operations]


class _Grant(NamedTuple):
    """The same operations on several resources of a type; the ACL names neither."""

    acl: Acl
    operations: tuple[str, ...]
    resources: list[str]


def _grants(acls: Iterable[Acl]) -> list[_Grant]:
    operations: dict[Acl, list[str]] = defaultdict(list)
    for acl in acls:
        operations[replace(acl, operation="")].append(acl.operation)
    resources: dict[tuple[Acl, tuple[str, ...]], list[str]] = defaultdict(list)
    for acl, allowed in operations.items():
        resources[replace(acl, resource=""), tuple(allowed)].append(acl.resource)
    return [_Grant(*each, named) for each, named in resources.items()]


def principal_of(config: ClientConfig) -> str:
    """Return the principal of a client of the source or the destination, or whose login names it."""
    if config.principal is not None:
        return config.principal
    if config.security is None:
        return "the principal of this mirror"
    return f"the principal of {'--from-config' if config.name == 'source' else '--to-config'}"


def acl_sentences(acls: Iterable[Acl]) -> list[str]:
    """Return sentences such as ``source: READ and DESCRIBE_CONFIGS on topics a, b``."""
    return [f"{each.acl.cluster}: {_and(each.operations)} on {_resources(each)}" for each in _grants(acls)]


def _and(words: tuple[str, ...]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _resources(grant: _Grant) -> str:
    if grant.acl.resource_type == "cluster":
        return "the cluster"
    kind = f"{grant.acl.resource_type}{'s' * (len(grant.resources) > 1)}"
    return f"{kind} {'that begin with ' * grant.acl.is_prefix}{', '.join(grant.resources)}"


def acl_commands(acls: Iterable[Acl], clients: Iterable[ClientConfig], *, is_own: bool = False) -> list[str]:
    """
    Return the commands that grant the ACLs.

    Args:
        acls: The ACLs to grant.
        clients: The clients of their clusters. If one logs in, a file is named for its administrator.
        is_own: Whether to name the clients' principals; otherwise, and if they are unknown, the shell's
            variable PRINCIPAL.

    """
    by_cluster = {each.name: each for each in clients}
    commands = []
    for acl, operations, resources in _grants(acls):
        client = by_cluster[acl.cluster]
        words = ["kafka-acls.sh", "--bootstrap-server", shlex.quote(client.servers)]
        if client.security is not None:
            words += ["--command-config", f"{acl.cluster}-admin.properties"]
        principal = client.principal if is_own else None
        words += ["--add", "--allow-principal", shlex.quote(principal) if principal else '"$PRINCIPAL"']
        for operation in operations:
            words += ["--operation", operation.title().replace("_", "")]
        if acl.resource_type == "cluster":
            words.append("--cluster")
        else:
            for resource in resources:
                words += [f"--{acl.resource_type}", shlex.quote(resource)]
            words += ["--resource-pattern-type", "prefixed"] if acl.is_prefix else []
        commands.append(" ".join(words))
    return commands


def grant_command(acl: Acl, config: ClientConfig) -> str:
    """Return the command that grants one ACL to the principal of a client of its cluster."""
    (command,) = acl_commands([acl], [config], is_own=True)
    return command


#: Literal characters, then anything. Any other expression selects less than its prefix would allow.
_PREFIX = re.compile(r"((?:[\w-]|\\[.-])+)\.[*+]")

#: Names for the rest of a topic, to find out how a rename treats it.
_RESTS = ("a1", "zz.9")


def prefixes_of(selection: TopicSelection) -> dict[str, str]:
    """
    Return the prefixes of the copies' names by those of the topics' names.

    An expression has one if it selects all topics that begin alike, and a rename keeps what follows.

    """
    if selection.exclude:
        return {}
    found = {}
    for expression in selection.expressions:
        if match := _PREFIX.fullmatch(expression):
            prefix = re.sub(r"\\(.)", r"\1", match[1])
            copies = {selection.destination_of(prefix + rest).removesuffix(rest) for rest in _RESTS}
            if len(copies) == 1:
                found[prefix] = copies.pop()
    return found


def by_prefix(acls: Iterable[Acl], prefixes: Mapping[str, str], *, creates: bool) -> list[Acl]:
    """
    Return the ACLs with those for the topics of a prefix in one.

    Args:
        acls: The ACLs by names.
        prefixes: See :func:`prefixes_of`.
        creates: Whether topics are created later.

    """
    by_cluster = {"source": list(prefixes), "destination": list(prefixes.values())}
    found = []
    for acl in acls:
        covering = [
            each
            for each in by_cluster[acl.cluster]
            if acl.resource_type == "topic" and acl.resource.startswith(each)
        ]
        found.append(replace(acl, resource=covering[0], is_prefix=True) if covering else acl)
    if creates:
        later = {each.resource for each in found if each.is_prefix and each.cluster == "destination"}
        found += [Acl("destination", "topic", each, "CREATE", is_prefix=True) for each in sorted(later)]
    # Of each kind of resource together, and each once.
    return list(dict.fromkeys(found))
