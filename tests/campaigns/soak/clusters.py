"""Two clusters of three real brokers, whose client listener requires TLS, a login and ACLs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from rig.authority import Authority
from rig.cluster import QUICK_JVM, KafkaCluster, java_properties, start_in_parallel
from rig.locked import PASSWORDS, jaas
from rig.wait import wait_until
from shoal.topic_partition import TopicPartition
from tests.campaigns.clusters.arena import BROKERS, Arena, Side

__all__ = ["GROUP", "PREFIX", "LockedClusters", "open_clusters"]

#: Prefix of the mirrored topics, to which the ACLs of the mirror's principal are limited.
PREFIX = "soak."
GROUP = "soak-mirror"

#: No super user: only the granted operations are allowed.
_MIRROR = "bob"
_MECHANISM = "SCRAM-SHA-512"
_LISTENER = "LOCKED"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_HEAP = "256m"

#: Of `docs/security.md`, by resource.
_GRANTED = {
    Side.SOURCE: {
        (ResourceType.TOPIC, PREFIX): (
            AclOperation.READ,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
        ),
        (ResourceType.GROUP, GROUP): (AclOperation.READ, AclOperation.DESCRIBE),
    },
    Side.DESTINATION: {
        (ResourceType.TOPIC, PREFIX): (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
        ),
    },
}


@dataclass(frozen=True, slots=True)
class LockedClusters:
    """The two clusters, and the access to them.

    Attributes:
        arena: The clusters, and the faults to inject.
        properties: The mirror's client properties, by side.
        admins: Admin clients of the harness, by side.
    """

    arena: Arena
    properties: dict[Side, Path]
    admins: dict[Side, AdminClient]

    def bootstrap(self, side: Side) -> str:
        """Addresses for the harness itself: the rig's own listener, which is open and not the mirror's."""
        return self.arena.bootstrap(side)

    def new_topic(self, name: str, partitions: int) -> float:
        """Create a topic at the source; return the time of its completion."""
        new = NewTopic(name, partitions, BROKERS)
        self.admins[Side.SOURCE].create_topics([new])[name].result(60)
        created_s = time.time()
        self._await_leaders(name, partitions)
        return created_s

    def new_partition(self, topic: str, partitions: int) -> float:
        """Add partitions to a source topic; return the time of completion."""
        new = NewPartitions(topic, partitions)
        self.admins[Side.SOURCE].create_partitions([new])[topic].result(60)
        created_s = time.time()
        self._await_leaders(topic, partitions)
        return created_s

    def topics(self, side: Side) -> list[str]:
        """Return the names of the mirrored topics."""
        return [name for name in self.admins[side].list_topics(timeout=30).topics if name.startswith(PREFIX)]

    def ends(self, side: Side, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets of some partitions, as soon as their leaders answer."""
        asked = {ConfluentPartition(*each): OffsetSpec.latest() for each in partitions}
        ends: dict[TopicPartition, int] = {}

        def are_read() -> bool:
            try:
                self.topics(side)  # the admin client's leader epochs are those of its last metadata
                for each, end in self.admins[side].list_offsets(asked, request_timeout=30).items():
                    ends[TopicPartition(each.topic, each.partition)] = end.result().offset
            except KafkaException:
                return False
            return True

        wait_until(are_read, f"the ends of {len(partitions)} partitions", timeout_s=60)
        return ends

    def _await_leaders(self, topic: str, partitions: int) -> None:
        admin = self.admins[Side.SOURCE]

        def has_leaders() -> bool:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            return len(found) == partitions and all(each.leader >= 0 for each in found.values())

        wait_until(has_leaders, f"leaders of {topic}")


@contextmanager
def open_clusters(relogin_ms: int) -> Iterator[LockedClusters]:
    """Start everything, with new credentials.

    Args:
        relogin_ms: ``connections.max.reauth.ms``: after this a client has to renew its login.
    """
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        directory = Path(name)
        authority = Authority()
        (directory / "ca.pem").write_text(authority.pem)
        authority.issue("broker", "127.0.0.1", "localhost").write_pem(directory / "broker.pem")
        clusters = {side: _cluster(directory, relogin_ms) for side in Side}
        with start_in_parallel(*clusters.values()):
            admins = {side: _admin(cluster) for side, cluster in clusters.items()}
            properties = {side: directory / f"{side.value}.properties" for side in Side}
            for side, cluster in clusters.items():
                _grant(admins[side], side)
                properties[side].write_text(java_properties(_client(cluster, directory)))
                properties[side].chmod(0o600)
            yield LockedClusters(Arena(clusters, {}), properties, admins)


def _cluster(directory: Path, relogin_ms: int) -> KafkaCluster:
    listener = f"listener.name.{_LISTENER.lower()}"
    config = {
        "default.replication.factor": BROKERS,
        "min.insync.replicas": 2,
        # Few threads: six brokers share the machine with the mirror.
        "num.network.threads": 2,
        "num.io.threads": 4,
        # Kafka's own: with the rig's shorter one, the controller would fence a broker that lacks CPU.
        "broker.session.timeout.ms": 9_000,
        "broker.heartbeat.interval.ms": 2_000,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The connections between brokers, and the harness.
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": _MECHANISM,
        f"{listener}.{_MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM} required;",
        f"{listener}.{_MECHANISM.lower()}.connections.max.reauth.ms": relogin_ms,
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": directory / "broker.pem",
    }
    return KafkaCluster(
        brokers=BROKERS,
        config=config,
        heap=_HEAP,
        jvm=QUICK_JVM,
        listeners={_LISTENER: "SASL_SSL"},
        format_options=("--add-scram", f'{_MECHANISM}=[name="{_MIRROR}",password="{PASSWORDS[_MIRROR]}"]'),
    )


def _client(cluster: KafkaCluster, directory: Path) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.listener(_LISTENER),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": _MECHANISM,
        "sasl.jaas.config": jaas(_MECHANISM, _MIRROR),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": directory / "ca.pem",
    }


def _admin(cluster: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def _grant(admin: AdminClient, side: Side) -> None:
    bindings = [
        AclBinding(
            resource,
            name,
            ResourcePatternType.PREFIXED,
            f"User:{_MIRROR}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for (resource, name), operations in _GRANTED[side].items()
        for operation in operations
    ]

    def is_granted() -> bool:
        """Create the ACLs; the controllers of a cluster that has just started may still be electing."""
        try:
            for future in admin.create_acls(bindings).values():
                future.result(30)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_CONTROLLER, KafkaError._TIMED_OUT):
                raise
            return False
        return True

    wait_until(is_granted, "the mirror's ACLs", timeout_s=60)
