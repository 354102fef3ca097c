"""
Trials between two real Kafka clusters: MirrorMaker 2, MirrorMaker 1's successor in shoal, and a client copy.

A trial fills a source topic. If it has faults, it fills a second topic with the records as the faults leave
them, and the tool copies that one: so the batches with the faults are the tool's own. Then verify compares
the first topic with the copy.

`python -m tests.verify.cluster_campaign --trials 100`
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rig import CODECS, KafkaCluster, read_topic
from rig.cluster import java_properties, two_clusters
from rig.load import Codec, await_markers, create_topic, send_batch, transactional_producer
from rig.mirror_maker import MirrorMaker2
from rig.read import Isolation, ReadFailed
from rig.record import Record
from rig.shoal import Shoal
from rig.wait import wait_until
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.net.address import parse_bootstrap
from shoal.records import Codec as RecordCodec
from shoal.verify import verify
from tests.verify.campaign import Copier, Trial
from tests.verify.campaign.faults import put_in
from tests.verify.campaign.logs import Piece, Placed
from tests.verify.campaign.source import random_items
from tests.verify.campaign.truth import LogSide, Truth
from tests.verifying import Item

__all__ = ["ClusterCampaign"]

#: Old timestamps are no reason to delete a record.
_KEPT = {"retention.ms": "-1"}

_COPY_TIMEOUT_S = 300


@dataclass(frozen=True)
class Tool:
    """
    One run of a tool, which copies the topics of several trials.

    Attributes:
        copier: The tool.
        codec: That of its producer, or of the batches that the loop sends.
        number: Makes names of its own.

    """

    copier: Copier
    codec: Codec
    number: int

    @property
    def prefix(self) -> str:
        """The beginning of the names of its topics."""
        return f"tool{self.number}-"

    @property
    def isolation(self) -> Isolation:
        """The isolation level of its consumer."""
        return "read_committed" if self.copier is Copier.RAW_MAKER else "read_uncommitted"

    def copy_of(self, topic: str) -> str:
        """Return the name of a topic's copy."""
        return f"source.{topic}" if self.copier is Copier.MIRROR_MAKER_2 else topic


#: Each with topics of its own. MirrorMaker 2 has one codec in a run.
_TOOLS: tuple[tuple[Copier, Codec], ...] = (
    (Copier.MIRROR_MAKER_2, "lz4"),
    (Copier.MIRROR_MAKER_2, "gzip"),
    (Copier.MIRROR_MAKER_2, "none"),
    (Copier.CONFLUENT, "zstd"),
    (Copier.RAW_MAKER, "none"),
    (Copier.DEEP_MAKER, "snappy"),
)


@dataclass
class ClusterTrial:
    """
    A trial, and the topics that it needs.

    Attributes:
        trial: Judges the report.
        tool: Copies it.
        copied_topic: The topic that the tool copies.

    """

    trial: Trial
    tool: Tool
    copied_topic: str
    visible: list[Placed] = field(default_factory=list)


class ClusterCampaign:
    """Trials between two clusters; `state` is a directory for files."""

    def __init__(self, source: KafkaCluster, destination: KafkaCluster, state: Path) -> None:
        self._source = source
        self._destination = destination
        self._state = state

    def run(self, seeds: Sequence[int]) -> Iterator[Trial]:
        """Make trials, tool by tool; yield each with its report."""
        tools = [Tool(copier, codec, number) for number, (copier, codec) in enumerate(_TOOLS)]
        for number, tool in enumerate(tools):
            trials = [self._prepare(seed, tool) for seed in seeds[number :: len(tools)]]
            if not trials:
                continue
            with self._running(tool, trials):
                for trial in trials:
                    self._await_copy(trial)
            for trial in trials:
                yield self._judged(trial)

    def _prepare(self, seed: int, tool: Tool) -> ClusterTrial:
        """Fill the source's topic, and a second one if there are faults."""
        rng = random.Random(seed)
        topic = f"{tool.prefix}trial-{seed}"
        level = IsolationLevel[tool.isolation.upper()]
        trial = Trial(seed, tool.copier, False, level, topic, tool.copy_of(topic), rng)
        found = random_items(rng, rng.randrange(1, 400), is_compacted=False)
        # librdkafka takes a time of 0 for the present.
        self._fill(rng, topic, [each._replace(timestamp=max(1, each.timestamp)) for each in found])
        visible = _placed(read_topic(self._source.bootstrap, topic, tool.isolation)[0])
        faults = rng.choice([0, 0, 1, 2, 3, 5])
        trial.pieces, trial.faults = put_in(rng, _pieces(rng, visible), faults)
        made = ClusterTrial(trial, tool, topic, visible)
        if trial.faults:
            made.copied_topic = f"{tool.prefix}faulty-{seed}"
            trial.copy_topic = tool.copy_of(made.copied_topic)
            self._fill_plainly(made.copied_topic, trial.pieces)
        if tool.copier is not Copier.MIRROR_MAKER_2:
            create_topic(self._destination.bootstrap, trial.copy_topic, config=_KEPT)
        return made

    def _fill(self, rng: random.Random, topic: str, found: Sequence[Item]) -> None:
        create_topic(self._source.bootstrap, topic, config=_KEPT)
        codec = rng.choice(CODECS)
        biggest = rng.choice([1, 10, 100])
        plain = _producer(self._source, codec, is_idempotent=rng.random() < 0.5)
        transactional = transactional_producer(self._source.bootstrap, topic, codec)
        rest = list(found)
        while rest:
            count = rng.randrange(1, biggest + 1)
            part, rest = [_record(each) for each in rest[:count]], rest[count:]
            kind = rng.choices(["plain", "commit", "abort"], [6, 1, 1])[0]
            if kind == "plain":
                send_batch(plain, topic, 0, part)
                continue
            transactional.begin_transaction()
            send_batch(transactional, topic, 0, part)
            if kind == "commit":
                transactional.commit_transaction(60)
            else:
                transactional.abort_transaction(60)
        await_markers(self._source.bootstrap, topic, range(1))

    def _fill_plainly(self, topic: str, pieces: Sequence[Piece]) -> None:
        create_topic(self._source.bootstrap, topic, config=_KEPT)
        producer = _producer(self._source, "lz4", is_idempotent=True)
        for piece in pieces:
            send_batch(producer, topic, 0, [_record(item) for _, item in piece.records])

    # The tools

    @contextmanager
    def _running(self, tool: Tool, trials: Sequence[ClusterTrial]) -> Iterator[None]:
        with ExitStack() as stack:
            names = "|".join(each.copied_topic for each in trials)
            if tool.copier is Copier.MIRROR_MAKER_2:
                more = {
                    "destination.producer.compression.type": tool.codec,
                    "sync.topic.configs.enabled": "true",
                }
                servers = self._source.bootstrap, self._destination.bootstrap
                stack.enter_context(MirrorMaker2(*servers, names, properties=more))
            elif tool.copier is Copier.CONFLUENT:
                for each in trials:
                    self._copy_by_loop(each)
            else:
                stack.enter_context(self._maker(tool, names))
            yield

    def _maker(self, tool: Tool, names: str) -> Shoal:
        consumer = {
            "bootstrap.servers": self._source.bootstrap,
            "group.id": tool.prefix,
            "auto.offset.reset": "earliest",
            "isolation.level": tool.isolation,
        }
        producer = {"bootstrap.servers": self._destination.bootstrap, "compression.type": tool.codec}
        given = []
        for name, properties in (("consumer", consumer), ("producer", producer)):
            file = self._state / f"{tool.prefix}{name}.properties"
            file.write_text(java_properties(properties))
            file.chmod(0o600)
            given += [f"--{name}.config", str(file)]
        raw = ["--use.raw.bytes"] if tool.copier is Copier.RAW_MAKER else []
        return Shoal("mirror-maker", "--json", *given, "--include", names, *raw, state=self._state)

    def _copy_by_loop(self, trial: ClusterTrial) -> None:
        """Read records and send them, some at a time."""
        producer = _producer(self._destination, trial.tool.codec, is_idempotent=True)
        rest = read_topic(self._source.bootstrap, trial.copied_topic, trial.tool.isolation)[0]
        while rest:
            count = trial.trial.rng.randrange(1, 100)
            send_batch(producer, trial.trial.copy_topic, 0, rest[:count])
            rest = rest[count:]

    def _await_copy(self, trial: ClusterTrial) -> None:
        wanted = [item for piece in trial.trial.pieces for _, item in piece.records]

        def is_there() -> bool:
            with suppress(KafkaException, ReadFailed, KeyError):
                found = read_topic(self._destination.bootstrap, trial.trial.copy_topic, "read_committed")[0]
                return len(found) >= len(wanted)
            return False

        wait_until(is_there, f"{trial.trial.copy_topic} to be copied", _COPY_TIMEOUT_S)

    # Retention, and the judgement

    def _judged(self, made: ClusterTrial) -> Trial:
        trial = made.trial
        copied = self._read(self._destination, trial.copy_topic)
        offsets = iter(each.offset for each in copied)
        for piece in trial.pieces:
            piece.offsets = [next(offsets) for _ in piece.records]
        for cluster, topic in ((self._source, trial.topic), (self._destination, trial.copy_topic)):
            if trial.rng.random() < 0.3:
                # Doubles may make the copy longer than the source.
                records = len(made.visible) if cluster is self._source else len(copied)
                start = trial.rng.randrange(max(1, records))
                _delete_records(cluster, topic, start)
                trial.notes.append(f"retention of {topic} up to {start}")
        ours = _placed(read_topic(self._source.bootstrap, trial.topic, made.tool.isolation)[0])
        theirs = self._read(self._destination, trial.copy_topic)
        trial.truth = Truth(
            _side(self._source, trial.topic, ours), _side(self._destination, trial.copy_topic, theirs)
        )
        source, destination = (
            ClientConfig(name, tuple(parse_bootstrap(cluster.bootstrap)), isolation_level=trial.level)
            for name, cluster in (("source", self._source), ("destination", self._destination))
        )
        topics = {trial.topic: trial.copy_topic}
        (trial.report,) = verify(source, destination, topics, group="none").partitions
        return trial

    @staticmethod
    def _read(cluster: KafkaCluster, topic: str) -> list[Placed]:
        return _placed(read_topic(cluster.bootstrap, topic, "read_uncommitted")[0])


def _pieces(rng: random.Random, found: Sequence[Placed]) -> list[Piece]:
    pieces = []
    at = 0
    while at < len(found):
        part = found[at : at + rng.randrange(1, 60)]
        at += len(part)
        pieces.append(Piece(RecordCodec.NONE, [*part]))
    return pieces


def _placed(found: Sequence[Record]) -> list[Placed]:
    return [Placed(each.offset, Item(each.timestamp, each.key, each.value, each.headers)) for each in found]


def _record(item: Item) -> Record:
    return Record(item.key, item.value, item.headers, item.timestamp)


def _side(cluster: KafkaCluster, topic: str, records: list[Placed]) -> LogSide:
    """Return a log without holes: nothing is compacted."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    start, end = (
        admin.list_offsets({partition: which})[partition].result().offset
        for which in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return LogSide(records, start, end)


def _producer(cluster: KafkaCluster, codec: str, *, is_idempotent: bool) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "compression.codec": codec,
            "enable.idempotence": is_idempotent,
            "acks": "all",
            "linger.ms": 20_000,
            "log_level": 0,
        }
    )


def _delete_records(cluster: KafkaCluster, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0, before)
    admin.delete_records([partition])[partition].result()


def main() -> None:
    """Run trials between real clusters, and report how many are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.cluster_campaign", description=main.__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    args = parser.parse_args()
    wrong = count = 0
    with two_clusters() as (source, destination), tempfile.TemporaryDirectory(prefix="shoal-") as state:
        campaign = ClusterCampaign(source, destination, Path(state))
        for trial in campaign.run(range(args.first, args.first + args.trials)):
            count += 1
            complaint = trial.complaint()
            if complaint:
                wrong += 1
                print(f"WRONG {complaint}: {trial.details}", flush=True)
    print(f"{count} trials between clusters from seed {args.first}: {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
