"""A cut-over of many partitions and groups, from the last record to the certificate: the row ``cutover``.

A mirror runs, and producers send records. Some groups have consumers that read them, the others have offsets
anywhere. Then ``shoal cutover`` begins. When its gate *quiet* waits, the producers stop, and then the
consumers. The time counts from the last acknowledgement of the source to the end of the command. That the
offsets are exact is a matter of the campaigns, and of the certificate.
"""

import itertools
import random
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.in_threads import InThreads, Load
from bench.measure import MoverFailed, end_offsets
from bench.rows import Row, Settings, delete_topics, in_turns
from bench.runs import Section
from rig import KafkaCluster, load_plain, wait_until
from rig.shoal import Shoal, state_in

__all__ = ["CUTOVER"]

_GATES_S = 900
_RECORDS_PER_S = 500
_PER_TOPIC = 50
_MEGABYTES = 120

#: Some of the groups are read by consumers until the cut.
_CONSUMERS = 5


@dataclass(frozen=True)
class _Size:
    """The topics, each with the number of its partitions, and the number of groups; each reads one topic."""

    name: str
    topics: Mapping[str, int]
    groups: int

    @classmethod
    def of(cls, turn: int, scale: float) -> "_Size":
        name, partitions = f"moved{turn}", max(_PER_TOPIC, int(1200 * scale))
        firsts = range(0, partitions, _PER_TOPIC)
        topics = {f"{name}.{number}": _PER_TOPIC for number, _ in enumerate(firsts)}
        return cls(name, topics, max(_CONSUMERS, int(100 * scale)))

    @property
    def selected(self) -> tuple[str, ...]:
        """The options of shoal that name the topics and the groups."""
        return "--topics", f"{self.name}[.].*", "--groups", f"{self.name}-.*"

    @property
    def places(self) -> list[tuple[str, int]]:
        """The partitions, each topic's in turn."""
        return [(topic, number) for number in range(_PER_TOPIC) for topic in self.topics]

    def groups_of(self, first: int, end: int) -> dict[str, str]:
        """Return the topic that each group reads, from one group up to another."""
        names = list(self.topics)
        return {f"{self.name}-{number}": names[number % len(names)] for number in range(first, end)}


def _run(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    turns = itertools.count()

    def measure(scale: float) -> dict[str, float]:
        size = _Size.of(next(turns), scale)
        _load(source.bootstrap, size, _MEGABYTES * scale)
        _commit(source.bootstrap, size)
        figures = _cut_over(source, destination, size)
        for cluster in (source, destination):
            delete_topics(cluster, *size.topics)
        return figures

    figures = in_turns("cut-over", {"shoal cutover": settings.scale}, settings.repeat, measure)
    size = _Size.of(0, settings.scale)
    text = (
        f"{sum(size.topics.values()):,} partitions and {size.groups} groups, {_CONSUMERS} of them with "
        f"consumers; {_RECORDS_PER_S} records/s until the gate *quiet* waits."
    )
    return Section("Cut-over", text, figures)


CUTOVER = Row("cutover", "seconds of a cut-over of 1,200 partitions and 100 groups", 8, _run, False)


def _load(bootstrap: str, size: _Size, megabytes: float) -> None:
    for topic, partitions in size.topics.items():
        load_plain(bootstrap, topic, "lz4", 16, int(megabytes * 1e6 / len(size.topics)), partitions)


def _commit(bootstrap: str, size: _Size) -> None:
    """Commit an offset of each partition for each group without consumers."""
    admin, dice = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), random.Random(1)
    for group, topic in size.groups_of(_CONSUMERS, size.groups).items():
        offsets = [
            TopicPartition(topic, number, dice.randint(0, end))
            for number, end in enumerate(end_offsets(bootstrap, topic))
        ]
        asked = [ConsumerGroupTopicPartitions(group, offsets)]

        def is_committed(asked: list[ConsumerGroupTopicPartitions] = asked, group: str = group) -> bool:
            try:  # a coordinator creates the topic of the offsets with the cluster's first group
                answered = admin.alter_consumer_group_offsets(asked, request_timeout=60)[group].result()
            except KafkaException as error:
                if error.args[0].retriable() or "OORDINATOR" in error.args[0].name().upper():
                    return False
                raise
            return all(each.error is None for each in answered.topic_partitions)

        wait_until(is_committed, f"the commit of {group}", 120)


def _cut_over(source: KafkaCluster, destination: KafkaCluster, size: _Size) -> dict[str, float]:
    """Return the seconds from the last record to the end of the command, and those of each gate."""
    between = ("--from", source.bootstrap, "--to", destination.bootstrap)
    with tempfile.TemporaryDirectory(prefix="bench-cutover-") as path:
        state, own = state_in(Path(path)), ("--timeout", f"{_GATES_S}", "--json")
        certificate = ("--certificate", str(Path(path) / "certificate.json"))
        options = (*between, *size.selected)
        with (
            Shoal("mirror", *options, "--sync", "configs", "--json", environment=state) as mirror,
            Load(source.bootstrap, size.places, _RECORDS_PER_S) as producers,
            _Consuming(source.bootstrap, size.groups_of(0, _CONSUMERS)) as consumers,
        ):
            wait_until(consumers.have_read, "the consumers' first commits", 300)
            with Shoal("cutover", *options, *own, *certificate, environment=state) as cutover:
                cutover.wait_for(lambda event: event.get("gate") == "quiet", 2 * _GATES_S)
                producers.stop()
                stopped_at = time.monotonic()
                consumers.stop()
                outcome = cutover.wait(_GATES_S)
                took_s = time.monotonic() - stopped_at
            if cutover.exit_code != 0 or not outcome:
                raise MoverFailed(f"shoal cutover ended with {cutover.exit_code}: {cutover.stderr[-5000:]}")
            if mirror.exit_code is not None:
                raise MoverFailed(f"shoal mirror ended: {mirror.stderr[-5000:]}")
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()
    gates = {f"gate {each['gate']}, s": each["elapsed_s"] for each in outcome["gates"]}
    return {"after the last record, s": took_s, **gates}


class _Consuming(InThreads):
    """Consumers that read and commit, each of its own group."""

    def __init__(self, bootstrap: str, topics: Mapping[str, str]) -> None:
        super().__init__()
        self._read: set[str] = set()
        self._groups = set(topics)
        for group, topic in topics.items():
            self.begin(bootstrap, group, topic)

    def have_read(self) -> bool:
        """Whether each group has read something."""
        return self._read == self._groups or bool(self._failures)

    def work(self, *arguments: str) -> None:
        bootstrap, group, topic = arguments
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        try:
            while not self._over.is_set():
                if consumer.consume(500, timeout=0.5):
                    self._read.add(group)
        finally:
            consumer.close()
