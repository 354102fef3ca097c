"""Two clusters of three brokers each, with proxies or locks before all of them, and the faults to inject."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from rig import disk
from rig.agent import agent_jar
from rig.cluster import QUICK_JVM, KafkaCluster, start_in_parallel
from rig.leaders import first_coordinator, move_leaders
from rig.locked import LockedKafka, jaas, locked_kafka
from rig.proxy import Proxies
from rig.wait import wait_until

__all__ = [
    "BROKERS",
    "Arena",
    "Ending",
    "Side",
    "controller_of",
    "coordinator_of",
    "open_arena",
    "open_locked_arena",
]

BROKERS = 3

#: Default producer expiration of the two destinations; a day, as in every Kafka.
DEFAULT_EXPIRATION_MS = 86_400_000

_EXPIRATION = "producer.id.expiration.ms"

#: If a consumer cannot leave its group, as its coordinator is down, the group is soon without it all the
#: same. Of KIP-848's protocol this is the broker's decision, 45 s by default.
_MEMBER_MS = 10_000

_CONFIG = {
    "default.replication.factor": BROKERS,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    _EXPIRATION: DEFAULT_EXPIRATION_MS,
    # Kafka's default is 10 minutes: here brokers forget producers while the mirror still needs them.
    "producer.id.expiration.check.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": _MEMBER_MS,
    "group.consumer.session.timeout.ms": _MEMBER_MS,
    # Few threads: six brokers share the machine with the mirror.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.enable": "false",
}
_HEAP = "256m"

#: Of a destination broker. A trial writes a few MB, which are deleted a minute after its end.
_DISK_MEGABYTES = 256

#: Time for a broker to end with a full disk: it continues until its next append.
_ENDS_WITHIN_S = 20.0


class Side(Enum):
    SOURCE = "source"
    DESTINATION = "destination"


#: The mirror's principal at locked clusters, which is no super user, its login, and its rights.
_PRINCIPAL = "bob"
_MECHANISM = "SCRAM-SHA-512"
_GRANTED: Mapping[Side, Mapping[ResourceType, Sequence[AclOperation]]] = {
    Side.SOURCE: {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
        ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE),
    },
    Side.DESTINATION: {
        ResourceType.TOPIC: (
            *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.READ, AclOperation.WRITE),
            *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
        ),
    },
}

#: A broker that lacks CPU is not fenced by its controller: these are Kafka's own times, not the rig's.
_PATIENT: dict[str, object] = {"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000}


class Ending(Enum):
    """The way in which a broker ends."""

    KILL = "kill -9"
    STOP = "a clean end"
    FULL_DISK = "a full disk"


def controller_of(cluster: KafkaCluster) -> int:
    """Return the active controller."""
    return cluster.controller()


def coordinator_of(cluster: KafkaCluster) -> int:
    """Return a broker that coordinates groups; the first broker if there is no group."""
    return first_coordinator(cluster.bootstrap) or 1


@dataclass
class Arena:
    """Two clusters, their proxies and their disks.

    Attributes:
        clusters: The clusters, by side.
        proxies: The proxies in front of their brokers; none of locked ones, whose requests are encrypted.
        keys: The mirror's properties for locked clusters, by which it connects.
        has_disks: Whether the trials can fill the disks of the destination's brokers.
    """

    clusters: dict[Side, KafkaCluster]
    proxies: dict[Side, Proxies] = field(default_factory=dict)
    keys: Mapping[Side, Mapping[str, object]] = field(default_factory=lambda: {side: {} for side in Side})
    has_disks: bool = False
    _locks: dict[Side, threading.Lock] = field(
        default_factory=lambda: {side: threading.Lock() for side in Side}
    )
    _expiration_ms: int = DEFAULT_EXPIRATION_MS

    def bootstrap(self, side: Side) -> str:
        """Addresses of the brokers themselves."""
        return self.clusters[side].bootstrap

    def before(self, side: Side) -> str:
        """Addresses for the mirror: of the proxies, or of the locked listeners."""
        return self.proxies[side].bootstrap if self.proxies else self.clusters[side].listener("SASLTLS")

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the destination's ``producer.id.expiration.ms``, a dynamic setting, and wait for its effect."""
        if expiration_ms == self._expiration_ms:
            return
        admin = AdminClient({"bootstrap.servers": self.bootstrap(Side.DESTINATION), "log_level": 0})
        entry = ConfigEntry(_EXPIRATION, str(expiration_ms), incremental_operation=AlterConfigOpType.SET)
        # One at a time: librdkafka accepts only one, and no default for all brokers.
        for node_id in range(1, BROKERS + 1):
            change = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=[entry])
            admin.incremental_alter_configs([change])[change].result()

        def holds() -> bool:
            for node_id in range(1, BROKERS + 1):
                broker = ConfigResource(ResourceType.BROKER, str(node_id))
                if admin.describe_configs([broker])[broker].result()[_EXPIRATION].value != str(expiration_ms):
                    return False
            return True

        wait_until(holds, f"{_EXPIRATION}={expiration_ms}")
        self._expiration_ms = expiration_ms

    def restart(
        self, side: Side, broker: int | Callable[[KafkaCluster], int], ending: Ending, down_s: float
    ) -> None:
        """End a broker, and start it again; return when it is back.

        Only one broker of a cluster is down at a time: with two, no write could succeed.

        Args:
            broker: Its node id, or what finds it.
            down_s: Time between its end and its start.
        """
        cluster = self.clusters[side]
        with self._locks[side]:
            node_id = broker if isinstance(broker, int) else broker(cluster)
            match ending:
                case Ending.KILL:
                    cluster.kill(node_id)
                case Ending.STOP:
                    cluster.stop(node_id)
                case Ending.FULL_DISK:
                    disk.fill(cluster.log_dirs[node_id])
                    cluster.await_end(node_id, _ENDS_WITHIN_S)
                    cluster.kill(node_id)
            time.sleep(down_s)  # the length of its absence, not a wait for a condition
            if ending is Ending.FULL_DISK:
                disk.make_room(cluster.log_dirs[node_id])
            cluster.start(node_id)

    def move_leaders(self, side: Side, topic: str, steps: int) -> None:
        """Move each partition's leadership by this many replicas."""
        with self._locks[side]:
            move_leaders(self.clusters[side].bootstrap, topic, steps)

    def heal(self) -> None:
        """Wait until every broker runs and every replica of both clusters is in sync."""
        for side, cluster in self.clusters.items():
            with self._locks[side]:
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
                wait_until(partial(_in_sync, admin), f"all replicas of the {side.value}", 90, 0.1)


@contextmanager
def open_arena(*, with_agent: bool = False) -> Iterator[Arena]:
    """Start everything, once for many trials: about half a minute on two cores.

    If the brokers run shoal's agent, the destination's accept several batches in a request.
    """
    has_disks = disk.mounts_are_refused() is None
    agent = [f"-javaagent:{agent_jar()}"] if with_agent else []
    clusters = {
        side: KafkaCluster(
            brokers=BROKERS,
            config=_CONFIG,
            heap=_HEAP,
            jvm=(*QUICK_JVM, *(agent if side is Side.DESTINATION else ())),
            behind_proxies=True,
            disk_megabytes=_DISK_MEGABYTES if side is Side.DESTINATION and has_disks else None,
        )
        for side in Side
    }
    with (
        start_in_parallel(*clusters.values()),
        Proxies(clusters[Side.SOURCE].proxied_ports) as source,
        Proxies(clusters[Side.DESTINATION].proxied_ports) as destination,
    ):
        proxies = {Side.SOURCE: source, Side.DESTINATION: destination}
        yield Arena(clusters, proxies, has_disks=has_disks)


@contextmanager
def open_locked_arena(relogin_ms: int) -> Iterator[Arena]:
    """Start clusters that require TLS, a login and ACLs of the mirror.

    Args:
        relogin_ms: ``connections.max.reauth.ms``: after this a client has to renew its login.
    """
    relogin = {f"listener.name.sasltls.{_MECHANISM.lower()}.connections.max.reauth.ms": relogin_ms}
    config = {**_CONFIG, **_PATIENT, **relogin}
    with ExitStack() as stack:
        locked = {
            side: stack.enter_context(locked_kafka(brokers=BROKERS, config=config, heap=_HEAP))
            for side in Side
        }
        for side, kafka in locked.items():
            for kind, operations in _GRANTED[side].items():
                kafka.allow(_PRINCIPAL, kind, "*", *operations)
        yield Arena(
            {side: kafka.cluster for side, kafka in locked.items()},
            keys={side: _key_of(kafka) for side, kafka in locked.items()},
        )


def _key_of(kafka: LockedKafka) -> dict[str, object]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": _MECHANISM,
        "sasl.jaas.config": jaas(_MECHANISM, _PRINCIPAL),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": kafka.directory / "ca.pem",
    }


def _in_sync(admin: AdminClient) -> bool:
    try:
        found = admin.list_topics(timeout=10)
    except KafkaException:
        return False
    return len(found.brokers) == BROKERS and all(
        len(partition.isrs) == len(partition.replicas) and partition.leader >= 0
        for topic in found.topics.values()
        for partition in topic.partitions.values()
    )
