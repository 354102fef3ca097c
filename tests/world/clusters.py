"""Two embedded clusters, and a mirror's settings between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.coordinator import MemberId
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.positions import GroupPositions
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.clock import now_ms
from shoal_broker.cluster import BrokerCluster
from shoal_broker.coordination.group import CommittedOffset
from tests.world.batches import Content
from tests.world.contents import content_of
from tests.world.control import Killed, Mortal
from tests.world.faults import let_pass
from tests.world.history import History
from tests.world.judge import Judge
from tests.world.task import RunningTask, TaskResult, run_copy_task

__all__ = ["QUICK", "TOPIC", "TwoBrokers", "config_of", "die_after", "recreate"]

#: The topic of most tests.
TOPIC = "topic"

#: Partitions and fetches wait for milliseconds instead of seconds: the brokers answer at once.
QUICK = Timing(
    first_retry_ms=1,
    longest_retry_ms=20,
    admission_s=0.005,
    look_interval_s=0.0,
    fetch_max_wait_ms=20,
    hold_look_s=0.001,
)


@dataclass(frozen=True)
class TwoBrokers:
    """
    Source and destination, and workers between them.

    Attributes:
        sources: The nodes of the source.
        destinations: The nodes of the destination.
        settings: The settings of the next task.

    """

    sources: BrokerCluster
    destinations: BrokerCluster
    settings: CopySettings

    @classmethod
    @contextmanager
    def started(
        cls, nodes: int = 1, *, multi_batch: bool = False, **source_config: str
    ) -> Iterator[TwoBrokers]:
        """Start both.

        With ``multi_batch`` the destination accepts several batches in a request. Otherwise the mirror does
        not request that, so that each Produce request has one batch.
        """
        config = {"shoal.multi.batch.produce": str(multi_batch).lower()}
        with ExitStack() as stack:
            sources = stack.enter_context(
                BrokerCluster(nodes, cluster_id="source", config=_dotted(source_config))
            )
            destinations = stack.enter_context(BrokerCluster(nodes, cluster_id="destination", config=config))
            settings = CopySettings(
                source=config_of("source", *sources.nodes),
                destination=config_of("destination", *destinations.nodes),
                group="mirror",
                rules="rules",
                fetch_buffer_bytes=4 * 1024 * 1024,
                multi_batch=multi_batch,
                timing=QUICK,
            )
            yield cls(sources, destinations, settings)

    @property
    def source(self) -> Broker:
        """The source's first node, which has the data of all."""
        return self.sources.nodes[0]

    @property
    def destination(self) -> Broker:
        """The destination's first node."""
        return self.destinations.nodes[0]

    def with_settings(self, **changes: Any) -> TwoBrokers:
        return replace(self, settings=replace(self.settings, **changes))

    def with_timing(self, **times: Any) -> TwoBrokers:
        return self.with_settings(timing=replace(self.settings.timing, **times))

    def going_on(self, *kinds: IncidentKind) -> TwoBrokers:
        """Continue behind incidents of these kinds."""
        return self.with_settings(continue_after=frozenset(kinds))

    def read_uncommitted(self) -> TwoBrokers:
        return self.with_clients("source", isolation_level=IsolationLevel.READ_UNCOMMITTED)

    def impatient(self) -> TwoBrokers:
        """Wait shortly for each answer, for tests of fetches that a broker answers only after its wait."""
        return self.with_clients("source", "destination", request_timeout_ms=250)

    def with_clients(self, *sides: str, **changes: Any) -> TwoBrokers:
        """Change the settings of the clients of one side, or of both."""
        return self.with_settings(
            **{side: replace(getattr(self.settings, side), **changes) for side in sides}
        )

    # Mirrors

    @property
    def between(self) -> list[str]:
        """The options of commands for both clusters."""
        return ["--from", self.source.bootstrap, "--to", self.destination.bootstrap]

    def options(self, topics: str, **given: Any) -> MirrorOptions:
        """Return the options of a mirror between them."""
        return MirrorOptions(self.settings.source, self.settings.destination, TopicSelection(topics), **given)

    # Contents

    def topic(self, name: str = "topic", partitions: int = 1, **destination_config: str) -> list[History]:
        """Create a topic on both sides; return the histories of the source's partitions."""
        self.source.create_topic(name, partitions)
        self.destination.create_topic(name, partitions, _dotted(destination_config))
        return [History(log) for log in self.source.topics.topic(name).logs]

    def copied(self, topic: str = "topic", partition: int = 0) -> list[Content]:
        """Return the destination's records."""
        return content_of(self.destination.log(topic, partition))

    def assert_exact(self, *histories: History, topic: str = "topic", partition: int = 0) -> None:
        """Let the judge compare the copies of partitions, from one on, with what producers wrote."""
        reads_committed = self.settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        for number, history in enumerate(histories, partition):
            judge = Judge(reads_committed=reads_committed)
            found = judge.compare(self.copied(topic, number), history.records, due=lambda record: True)
            assert found.problems == [], f"{topic}-{number}: {found.problems}"

    def position(self, topic: str = "topic", partition: int = 0) -> MirrorPosition:
        """Return the committed position."""
        found = self.committed(topic, partition)
        assert found is not None, "there is no position"
        return found

    def committed(self, topic: str = "topic", partition: int = 0) -> MirrorPosition | None:
        """Return the position that the coordinator has, if it has one."""
        key = (topic, partition)
        kept = self.source.groups.read(self.settings.group, lambda group: group.offsets.get(key))
        return None if kept is None else MirrorPosition.from_committed(Committed(kept.offset, kept.metadata))

    def commit(self, position: MirrorPosition, topic: str = "topic", partition: int = 0) -> None:
        """Commit a position, over any committed one."""
        with Cluster(self.settings.source) as cluster:
            GroupPositions(cluster, self.settings.group, MemberId).commit(
                {TopicPartition(topic, partition): position}
            )

    def taking_over(self, offset: int = 0, topic: str = "topic", partition: int = 0) -> TwoBrokers:
        """Let a consumer of the mirror's group commit an offset, and let the mirror begin there."""
        kept = CommittedOffset(offset, -1, "", now_ms())
        self.source.groups.commit(self.settings.group, {(topic, partition): kept})
        return self.with_settings(takes_over_offsets=True)

    def forget_pairs(self) -> None:
        """Let the group's positions expire."""
        self.source.groups.delete(self.settings.group)

    def expire(self, partition: int, topic: str = "topic") -> None:
        """Let the position of one partition expire; the group must have no member."""
        groups, key = self.source.groups, (topic, partition)
        kept = groups.read(self.settings.group, lambda group: group.offsets.get(key))
        if kept is not None:
            groups.commit(self.settings.group, {key: kept._replace(expires_at_ms=0)})
            self.source.forget_old_offsets()

    # Copying

    def ranges(self, *topics: str) -> list[CopyRange]:
        """Return ranges from the logs' starts to their ends, for all partitions of some topics."""
        committed = self.settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        return [
            CopyRange(
                topic,
                number,
                topic,
                log.log_start_offset,
                log.last_stable_offset if committed else log.high_watermark,
            )
            for topic in topics or ("topic",)
            for number, log in enumerate(self.source.topics.topic(topic).logs)
        ]

    def open_ranges(self, *topics: str) -> list[CopyRange]:
        """Return the same ranges without ends."""
        return [each._replace(end_offset=OPEN_END) for each in self.ranges(*topics)]

    def run(self, ranges: Sequence[CopyRange] | None = None, control: Any = None) -> TaskResult:
        """Copy up to the current ends, as one task does."""
        return run_copy_task(self.ranges() if ranges is None else ranges, self.settings, control)

    def start(self, ranges: Sequence[CopyRange] | None = None, control: Any = None) -> RunningTask:
        wanted = self.ranges() if ranges is None else ranges
        return RunningTask(lambda: self.run(wanted, control))


def _dotted(config: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in config.items()}


def config_of(name: str, *brokers: Broker) -> ClientConfig:
    addresses = tuple(Address(broker.host, broker.port) for broker in brokers)
    return ClientConfig(name, addresses, request_timeout_ms=5_000)


def recreate(broker: Broker, topic: str = "topic", *, with_offsets: bool = False) -> History:
    """Delete a topic and create another of its name; Kafka deletes all groups' offsets in it, in the end."""
    former = broker.topics.topic(topic)
    broker.topics.delete(former)
    broker.leaders.forget(topic)
    if with_offsets:
        broker.groups.forget_topic(topic)
    broker.create_topic(topic, len(former.logs))
    return History(broker.log(topic))


def die_after(brokers: TwoBrokers, requests: int, **fault: Any) -> None:
    """Kill a worker after this many acknowledged requests; only its first position is committed."""
    let_pass(brokers.destination, ApiKey.PRODUCE, requests)
    brokers.destination.faults.add(ApiKey.PRODUCE, **{"drop": "before", **fault})
    try:
        brokers.run(control=Mortal())
    except Killed:
        brokers.destination.faults.clear()
    else:
        raise AssertionError("the task was not killed")
