"""Real KRaft clusters on loopback, each broker a JVM of its own.

A cluster of one or two brokers has one controller, in the first broker. If there are three or more,
every broker is also a controller, so that you can kill any one of them.
"""

import contextlib
import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rig import disk
from rig.jars import KAFKA_VERSION, class_archive, class_path, fetched, java
from rig.ports import free_port, random_uuid
from rig.process import cpu_seconds_of, spawn, tail
from rig.readiness import KafkaDidNotStart, await_broker, await_leadership

__all__ = [
    "BENCH_JVM",
    "QUICK_JVM",
    "KafkaCluster",
    "ProxiedPort",
    "java_properties",
    "start_in_parallel",
    "two_clusters",
]

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Starts quickly, runs slowly: for tests. Do not measure a broker's CPU with these options."""

BENCH_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""Options of Kafka's own start scripts for a broker (KAFKA_JVM_PERFORMANCE_OPTS)."""

LOG4J = Path(__file__).parent / "log4j2.properties"
OLD_LOG4J = Path(__file__).parent / "log4j.properties"
"""The logging configuration of versions before 4.0."""

_FORMATS_S = 120


@dataclass(frozen=True, slots=True)
class ProxiedPort:
    """A second listener of a broker, advertised to clients at a proxy's port.

    Attributes:
        advertised: The proxy's port; the broker advertises it to clients of this listener.
        behind: The broker's port, to which the proxy connects.
    """

    advertised: int
    behind: int


@dataclass
class _Broker:
    node_id: int
    port: int
    controller_port: int | None
    directory: Path
    proxied: "ProxiedPort | None" = None
    listeners: dict[str, int] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    cpu_seconds_of_dead: float = 0.0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def log_dir(self) -> Path:
        return self.directory / "data"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def cpu_seconds(self) -> float:
        return self.cpu_seconds_of_dead + (cpu_seconds_of(self.process) if self.process else 0.0)


@dataclass
class KafkaCluster:
    """A cluster of real Kafka brokers, running inside a ``with`` block.

    Node ids are 1 to ``brokers``. Ports, cluster id and data stay the same if a broker is
    stopped or killed and started again. The end of the block deletes everything.

    Args:
        brokers: Number of brokers.
        config: Broker properties, over the rig's own. The rig disables topic creation by clients,
            and retention (``log.retention.ms=-1``), since test records have old timestamps.
        heap: The JVM's ``-Xmx``.
        jvm: Further JVM options: ``QUICK_JVM`` or ``BENCH_JVM``.
        broker_jvm: JVM options of single brokers, by node id: a ``-javaagent:``.
        version: Kafka's version, one that `rig.jars` supports.
        behind_proxies: Give each broker a second listener, for `rig.proxy.Proxies`. Clients that
            connect by `bootstrap` still reach the brokers directly.
        listeners: Further listeners of each broker, as security protocols by upper-case names;
            ``config`` has their settings, as ``listener.name.<lower-case name>.…``.
        format_options: Options of ``StorageTool format``, such as ``--add-scram`` and its value.
        disk_megabytes: Give each broker's ``log.dirs`` a separate file system of this size
            (`rig.disk`), but not the metadata log. If it is full, the broker ends because of its log
            directory; the controller does not.

    Raises:
        MountRefused: On entry: this process may not mount.
        MissingKafka: On entry: no Java, no Maven, or the download failed.
        KafkaDidNotStart: On entry, or in ``start`` and ``restart``.
    """

    brokers: int = 1
    config: Mapping[str, object] = field(default_factory=dict)
    heap: str = "768m"
    jvm: Sequence[str] = QUICK_JVM
    broker_jvm: Mapping[int, Sequence[str]] = field(default_factory=dict)
    version: str = KAFKA_VERSION
    behind_proxies: bool = False
    listeners: Mapping[str, str] = field(default_factory=dict)
    format_options: Sequence[str] = ()
    disk_megabytes: int | None = None
    cluster_id: str = field(default_factory=lambda: random_uuid())
    _nodes: dict[int, _Broker] = field(default_factory=dict, repr=False)
    _directory: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)
    _mounted: list[Path] = field(default_factory=list, repr=False)

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="rig-kafka-", ignore_cleanup_errors=True)
        try:
            self._lay_out()
            self._format()
            for broker in self._nodes.values():
                self._launch(broker)
            for broker in self._nodes.values():
                self._await_answer(broker, self.brokers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: ``127.0.0.1:port``, comma-separated."""
        return ",".join(broker.address for broker in self._nodes.values())

    @property
    def proxied_ports(self) -> dict[int, ProxiedPort]:
        """Ports for the proxies in front of the brokers, by node id; empty without ``behind_proxies``."""
        return {node_id: broker.proxied for node_id, broker in self._nodes.items() if broker.proxied}

    @property
    def node_ids(self) -> list[int]:
        """Ids of all brokers, running or not."""
        return list(self._nodes)

    @property
    def log_dirs(self) -> dict[int, Path]:
        """Each broker's ``log.dirs``, by node id."""
        return {node_id: broker.log_dir for node_id, broker in self._nodes.items()}

    def address(self, node_id: int) -> str:
        """Return one broker's ``127.0.0.1:port``."""
        return self._nodes[node_id].address

    def listener(self, name: str) -> str:
        """Return bootstrap servers for one of the further listeners."""
        return ",".join(f"127.0.0.1:{broker.listeners[name]}" for broker in self._nodes.values())

    def process_id(self, node_id: int) -> int:
        """Return the process id of a running broker."""
        process = self._nodes[node_id].process
        if process is None:
            raise ValueError(f"broker {node_id} is not running")
        return process.pid

    def output(self, node_id: int, lines: int = 30) -> str:
        """Return the last lines of a broker's log."""
        return tail(self._nodes[node_id].log, lines)

    def partition_dir(self, topic: str, partition: int, node_id: int = 1) -> Path:
        """Return the directory of a partition's segments on one broker."""
        return self._nodes[node_id].log_dir / f"{topic}-{partition}"

    def cpu_seconds(self) -> float:
        """Return user and system time of all brokers so far, including ended ones."""
        return sum(broker.cpu_seconds() for broker in self._nodes.values())

    def kill(self, node_id: int) -> None:
        """End a broker by SIGKILL, without a controlled shutdown or a flush."""
        self._end(self._nodes[node_id], signal.SIGKILL, timeout_s=30)

    def stop(self, node_id: int, timeout_s: float = 60) -> None:
        """End a broker by SIGTERM: a controlled shutdown, killed after ``timeout_s``."""
        self._end(self._nodes[node_id], signal.SIGTERM, timeout_s)

    def start(self, node_id: int) -> None:
        """Start a stopped broker on its port and data.

        Waits until the broker is part of the cluster, and serves the partitions that it leads by its
        metadata.
        """
        broker = self._nodes[node_id]
        if broker.process is not None:
            raise ValueError(f"broker {node_id} is running")
        self._launch(broker)
        self._await_answer(broker, 1)
        await_leadership(node_id, broker.address)

    def await_end(self, node_id: int, timeout_s: float) -> bool:
        """Wait until a broker has ended by itself, and return whether it has. Call `kill` in any case."""
        process = self._nodes[node_id].process
        try:
            return process is None or process.wait(timeout_s) is not None
        except subprocess.TimeoutExpired:
            return False

    def controller(self) -> int:
        """Return the node id of the active controller.

        Reads the ``quorum-state`` of the voters, which they wrote at their last election. The controller
        in a Metadata response is an arbitrary broker (KIP-631).
        """
        states = [
            json.loads(path.read_text(encoding="utf-8"))
            for broker in self._nodes.values()
            for path in broker.directory.glob("*/__cluster_metadata-0/quorum-state")
        ]
        leader = max(states, key=lambda state: (int(state["leaderEpoch"]), int(state["leaderId"])))
        return int(leader["leaderId"])

    def restart(self, node_id: int) -> None:
        """Stop a broker cleanly and start it again."""
        self.stop(node_id)
        self.start(node_id)

    def close(self) -> None:
        """Kill all processes and delete everything. You can call it repeatedly."""
        for broker in self._nodes.values():
            self._end(broker, signal.SIGKILL, timeout_s=30)
        while self._mounted:
            disk.unmount(self._mounted.pop())
        if self._directory is not None:
            self._directory.cleanup()

    def _lay_out(self) -> None:
        assert self._directory is not None
        for node_id in range(1, self.brokers + 1):
            is_controller = node_id == 1 or self.brokers >= 3
            directory = Path(self._directory.name) / f"broker-{node_id}"
            (directory / "tmp").mkdir(parents=True)
            self._nodes[node_id] = _Broker(
                node_id, free_port(), free_port() if is_controller else None, directory
            )
            self._nodes[node_id].listeners = {name: free_port() for name in self.listeners}
            if self.behind_proxies:
                self._nodes[node_id].proxied = ProxiedPort(free_port(), free_port())
        for broker in self._nodes.values():
            properties = {**self._default_properties(broker), **self.config}
            if self.disk_megabytes is not None:
                disk.mount(broker.log_dir, self.disk_megabytes)
                self._mounted.append(broker.log_dir)
                properties["metadata.log.dir"] = broker.directory / "metadata"
            broker.properties.write_text(java_properties(properties))

    def _default_properties(self, broker: _Broker) -> dict[str, object]:
        replicas = 3 if self.brokers >= 3 else 1
        client = f"PLAINTEXT://127.0.0.1:{broker.port}"
        controller = f"CONTROLLER://127.0.0.1:{broker.controller_port}"
        voters = (
            f"{other.node_id}@127.0.0.1:{other.controller_port}"
            for other in self._nodes.values()
            if other.controller_port is not None
        )
        combined = broker.controller_port is not None
        listeners, advertised = [client], [client]
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        if broker.proxied:
            listeners.append(f"PROXIED://127.0.0.1:{broker.proxied.behind}")
            advertised.append(f"PROXIED://127.0.0.1:{broker.proxied.advertised}")
            protocols += ",PROXIED:PLAINTEXT"
        for name, port in broker.listeners.items():
            listeners.append(f"{name}://127.0.0.1:{port}")
            advertised.append(f"{name}://127.0.0.1:{port}")
            protocols += f",{name}:{self.listeners[name]}"
        if combined:
            listeners.append(controller)
        return {
            "node.id": broker.node_id,
            "process.roles": "broker,controller" if combined else "broker",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": protocols,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": broker.log_dir,
            "log.retention.ms": -1,
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            # If a broker was killed, it can register again only after its old session ends (9 s by default).
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 500,
            # Few partitions, since the first group or transaction creates the files of all of them.
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": 1,
        }

    def _format(self) -> None:
        formats = [self._launch_format(broker) for broker in self._nodes.values()]
        for broker, process in zip(self._nodes.values(), formats, strict=True):
            if process.wait(_FORMATS_S) != 0:
                raise KafkaDidNotStart(
                    f"StorageTool format failed for broker {broker.node_id}:\n{tail(broker.log)}"
                )

    def _launch_format(self, broker: _Broker) -> subprocess.Popen[bytes]:
        tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c"]
        archive = [f"-XX:SharedArchiveFile={class_archive()}"] if self.version == KAFKA_VERSION else []
        options = [*QUICK_JVM, *archive, *self._jvm_options(broker)]
        arguments: list[str | Path] = [java(), *options, *tool, broker.properties]
        return spawn([*arguments, *self.format_options], broker.log)

    def _launch(self, broker: _Broker) -> None:
        own = self.broker_jvm.get(broker.node_id, ())
        quick = self.version == KAFKA_VERSION and tuple(self.jvm) == QUICK_JVM
        archive = [f"-XX:SharedArchiveFile={_written_class_archive()}"] if quick else []
        options = [f"-Xmx{self.heap}", *self.jvm, *archive, *own, *self._jvm_options(broker)]
        broker.process = spawn([java(), *options, "kafka.Kafka", broker.properties], broker.log)

    def _jvm_options(self, broker: _Broker) -> list[str]:
        return [
            # Codecs unpack native libraries into this directory. A killed JVM would leave them in the
            # system's.
            f"-Djava.io.tmpdir={broker.directory / 'tmp'}",
            f"-Dlog4j2.configurationFile={LOG4J}",
            f"-Dlog4j.configuration=file:{OLD_LOG4J}",
            "-cp",
            class_path(self.version),
        ]

    def _await_answer(self, broker: _Broker, brokers: int) -> None:
        assert broker.process is not None
        await_broker(broker.process, broker.node_id, broker.address, broker.log, brokers)

    def _end(self, broker: _Broker, how: signal.Signals, timeout_s: float) -> None:
        process = broker.process
        if process is None:
            return
        broker.cpu_seconds_of_dead = broker.cpu_seconds()
        broker.process = None
        process.send_signal(how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_archiving = threading.Lock()


def _written_class_archive() -> Path:
    """Return the archive, which a broker writes at its end if there is none yet."""

    def write(directory: Path) -> None:
        directory.mkdir()
        archive = directory / class_archive().name
        with KafkaCluster(jvm=(*QUICK_JVM, f"-XX:ArchiveClassesAtExit={archive}")) as cluster:
            cluster.stop(1)

    with _archiving:  # clusters start in parallel
        return fetched(class_archive().parent.name, write) / class_archive().name


@contextlib.contextmanager
def start_in_parallel(*clusters: KafkaCluster) -> Iterator[tuple[KafkaCluster, ...]]:
    """Run several clusters, all started at the same time, inside one ``with`` block."""
    with contextlib.ExitStack() as stack:
        for cluster in clusters:
            stack.callback(cluster.close)
        with ThreadPoolExecutor(max_workers=len(clusters)) as starters:
            starts = [starters.submit(cluster.__enter__) for cluster in clusters]
        yield tuple(start.result() for start in starts)


@contextlib.contextmanager
def two_clusters(**options: Any) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Run a source and a destination `KafkaCluster` with the same options, started in parallel."""
    source, destination = KafkaCluster(**options), KafkaCluster(**options)
    with start_in_parallel(source, destination):
        yield source, destination


def java_properties(properties: Mapping[str, object]) -> str:
    """Return the text of a ``.properties`` file, for values that need no escapes."""
    return "".join(f"{name}={_java_value(value)}\n" for name, value in properties.items())


def _java_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
