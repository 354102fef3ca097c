"""
Trials between two real Kafka clusters: copies by other tools, and logs that the real cleaner compacts.

A trial fills a source topic. If it has faults, it fills a second topic with the records as the faults leave
them, and the tool copies that one: so the batches with the faults are the tool's own. A topic to compact is
copied by a second topic, too, and both brokers clean it when the copy is there. Then verify compares the
first topic with the copy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rig import CODECS, KafkaCluster, read_topic
from rig.cluster import java_properties
from rig.compaction import COMPACTED, hasten_cleaner
from rig.load import Codec, alter_topic, await_markers, create_topic, send_batch, transactional_producer
from rig.mirror_maker import MirrorMaker2
from rig.read import Isolation, ReadFailed
from rig.record import Record
from rig.shoal import Shoal
from rig.wait import TimedOut, wait_until
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.net.address import parse_bootstrap
from shoal.records import Codec as RecordCodec
from shoal.verify import verify
from tests.world.batches import Content
from tests.world.history import NOW_MS

from .copiers import Copier
from .faults import put_in
from .logs import Piece, Placed
from .source import random_items
from .trial import Trial
from .truth import LogSide, Truth

__all__ = ["TOOLS", "run_between_clusters"]

#: Old timestamps are no reason to delete a record. The cleaner leaves a log's last segment alone.
_KEPT = {"retention.ms": "-1", "segment.ms": COMPACTED["segment.ms"]}

_COPY_TIMEOUT_S = 300

#: A cleaner that finds nothing to remove changes nothing.
_CLEANER_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class _Tool:
    """
    One run of a tool, which copies the topics of several trials.

    Attributes:
        copier: The tool.
        codec: That of its producer, or of the batches that the loop sends.
        isolation: The isolation level of its consumer.

    """

    copier: Copier
    codec: Codec
    isolation: Isolation = "read_uncommitted"

    @property
    def prefix(self) -> str:
        """The beginning of the names of its topics."""
        return f"{self.copier.name.lower()}-{self.codec}-"

    def copy_of(self, topic: str) -> str:
        """Return the name of a topic's copy."""
        return f"source.{topic}" if self.copier is Copier.MIRROR_MAKER_2 else topic


#: Each with topics of its own. MirrorMaker 2 has one codec in a run. `shoal mirror` runs with ``--rebatch``.
TOOLS = (
    _Tool(Copier.MIRROR_MAKER_2, "lz4"),
    _Tool(Copier.MIRROR_MAKER_2, "gzip"),
    _Tool(Copier.MIRROR_MAKER_2, "none"),
    _Tool(Copier.CONFLUENT, "zstd"),
    _Tool(Copier.EXACTLY_ONCE, "lz4", "read_committed"),
    _Tool(Copier.RAW_MAKER, "none", "read_committed"),
    _Tool(Copier.DEEP_MAKER, "snappy"),
    _Tool(Copier.RECOMPRESSED, "zstd", "read_committed"),
)


@dataclass
class _Made:
    """
    A trial, and the topics that it needs.

    Attributes:
        trial: Judges the report.
        tool: Copies it.
        copied_topic: The topic that the tool copies.

    """

    trial: Trial
    tool: _Tool
    copied_topic: str
    visible: list[Placed] = field(default_factory=list)


def run_between_clusters(
    source: KafkaCluster, destination: KafkaCluster, seeds: Sequence[int], directory: Path
) -> Iterator[Trial]:
    """Make trials, tool by tool; yield each with its report. ``directory`` is for the tools' files."""
    for cluster in (source, destination):
        hasten_cleaner(cluster.bootstrap)
    for number, tool in enumerate(TOOLS):
        trials = [_prepare(source, destination, each, tool) for each in seeds[number :: len(TOOLS)]]
        if not trials:
            continue
        with _running(source, destination, tool, trials, directory):
            for made in trials:
                _await_copy(destination, made.trial)
        for made in trials:
            yield _judged(source, destination, made)


def _prepare(source: KafkaCluster, destination: KafkaCluster, seed: int, tool: _Tool) -> _Made:
    """Fill the source's topic, and a second one if there are faults, or a cleaner."""
    rng = random.Random(seed)
    topic = f"{tool.prefix}trial-{seed}"
    level = IsolationLevel[tool.isolation.upper()]
    trial = Trial(seed, tool.copier, rng.random() < 0.3, level, topic, tool.copy_of(topic), rng)
    found = random_items(rng, rng.randrange(1, 400), is_compacted=trial.is_compacted)
    # librdkafka takes a time of 0 for the present.
    found = [each._replace(timestamp=max(1, each.timestamp)) for each in found]
    if trial.is_compacted:
        # A later record closes the segment of all others.
        found.append(Content(NOW_MS + 60_000, b"last", b""))
    _fill(source, trial, found)
    visible = _read(source, topic, tool.isolation)
    trial.pieces, trial.faults = put_in(rng, _pieces(rng, visible), rng.choice([0, 0, 1, 2, 3, 5]))
    made = _Made(trial, tool, topic, visible)
    if trial.faults or trial.is_compacted:
        made.copied_topic = f"{tool.prefix}copied-{seed}"
        trial.copy_topic = tool.copy_of(made.copied_topic)
        create_topic(source.bootstrap, made.copied_topic, config=_KEPT)
        producer = _producer(source, "lz4", is_idempotent=True)
        for piece in trial.pieces:
            send_batch(producer, made.copied_topic, 0, [_record(item) for _, item in piece.records])
    if tool.copier is not Copier.MIRROR_MAKER_2:
        create_topic(destination.bootstrap, trial.copy_topic, config=_KEPT)
    return made


def _fill(source: KafkaCluster, trial: Trial, found: Sequence[Content]) -> None:
    rng = trial.rng
    create_topic(source.bootstrap, trial.topic, config=_KEPT)
    codec = rng.choice(CODECS)
    biggest = rng.choice([1, 10, 100])
    plain = _producer(source, codec, is_idempotent=rng.random() < 0.5)
    transactional = transactional_producer(source.bootstrap, trial.topic, codec)
    rest = list(found)
    while rest:
        count = rng.randrange(1, biggest + 1)
        part, rest = [_record(each) for each in rest[:count]], rest[count:]
        kind = "plain" if trial.is_compacted else rng.choices(["plain", "commit", "abort"], [6, 1, 1])[0]
        if kind == "plain":
            send_batch(plain, trial.topic, 0, part)
        else:
            _send_transaction(transactional, trial.topic, part, is_aborted=kind == "abort")
    await_markers(source.bootstrap, trial.topic, range(1))


def _send_transaction(producer: Producer, topic: str, part: Sequence[Record], *, is_aborted: bool) -> None:
    producer.begin_transaction()
    send_batch(producer, topic, 0, part)
    if is_aborted:
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)


# The tools


@contextmanager
def _running(
    source: KafkaCluster, destination: KafkaCluster, tool: _Tool, trials: Sequence[_Made], directory: Path
) -> Iterator[None]:
    names, servers = "|".join(each.copied_topic for each in trials), (source.bootstrap, destination.bootstrap)
    with ExitStack() as stack:
        match tool.copier:
            case Copier.MIRROR_MAKER_2:
                codec = {"destination.producer.compression.type": tool.codec}
                stack.enter_context(MirrorMaker2(*servers, names, properties=codec))
            case Copier.CONFLUENT | Copier.EXACTLY_ONCE:
                for each in trials:
                    _copy_by_loop(source, destination, each)
            case Copier.RECOMPRESSED:
                mirror = ["mirror", "--from", servers[0], "--to", servers[1], "--topics", names, "--once"]
                rebatch = ["--rebatch", f"64k:{tool.codec}", "--group", tool.prefix]
                stack.enter_context(Shoal(*mirror, *rebatch, state=directory))
            case _:
                stack.enter_context(_maker(servers, tool, names, directory))
        yield


def _maker(servers: tuple[str, str], tool: _Tool, names: str, directory: Path) -> Shoal:
    consumer = {
        "bootstrap.servers": servers[0],
        "group.id": tool.prefix,
        "auto.offset.reset": "earliest",
        "isolation.level": tool.isolation,
    }
    producer = {"bootstrap.servers": servers[1], "compression.type": tool.codec}
    given = []
    for name, properties in (("consumer", consumer), ("producer", producer)):
        file = directory / f"{tool.prefix}{name}.properties"
        file.write_text(java_properties(properties))
        file.chmod(0o600)
        given += [f"--{name}.config", str(file)]
    raw = ["--use.raw.bytes"] if tool.copier is Copier.RAW_MAKER else []
    return Shoal("mirror-maker", "--json", *given, "--include", names, *raw, state=directory)


def _copy_by_loop(source: KafkaCluster, destination: KafkaCluster, made: _Made) -> None:
    """Read records and send them, some at a time; in transactions, some attempts are aborted and repeated."""
    topic, codec, rng = made.trial.copy_topic, made.tool.codec, made.trial.rng
    has_transactions = made.tool.copier is Copier.EXACTLY_ONCE
    producer = (
        transactional_producer(destination.bootstrap, topic, codec)
        if has_transactions
        else _producer(destination, codec, is_idempotent=True)
    )
    rest = read_topic(source.bootstrap, made.copied_topic, made.tool.isolation)[0]
    while rest:
        count = rng.randrange(1, 100)
        while has_transactions and rng.random() < 0.3:
            _send_transaction(producer, topic, rest[:count], is_aborted=True)
        if has_transactions:
            _send_transaction(producer, topic, rest[:count], is_aborted=False)
        else:
            send_batch(producer, topic, 0, rest[:count])
        rest = rest[count:]
    await_markers(destination.bootstrap, topic, range(1))


def _await_copy(destination: KafkaCluster, trial: Trial) -> None:
    count = sum(len(piece.records) for piece in trial.pieces)

    def is_there() -> bool:
        with suppress(KafkaException, ReadFailed, KeyError):
            return len(_read(destination, trial.copy_topic)) >= count
        return False

    wait_until(is_there, f"{trial.copy_topic} to be copied", _COPY_TIMEOUT_S, interval_s=0.5)


# Retention, the cleaner, and the judgement


def _judged(source: KafkaCluster, destination: KafkaCluster, made: _Made) -> Trial:
    trial, sides = made.trial, ((source, made.trial.topic), (destination, made.trial.copy_topic))
    copied = _read(destination, trial.copy_topic)
    offsets = iter(each.offset for each in copied)
    for piece in trial.pieces:
        piece.offsets = [next(offsets) for _ in piece.records]
    for cluster, topic in sides:
        if trial.is_compacted and trial.rng.random() < 0.7:
            _clean(trial, cluster, topic)
        elif not trial.is_compacted and trial.rng.random() < 0.3:
            # Doubles may make the copy longer than the source.
            records = len(made.visible) if cluster is source else len(copied)
            start = trial.rng.randrange(max(1, records))
            _delete_records(cluster, topic, start)
            trial.notes.append(f"retention of {topic} up to {start}")
    ours, theirs = (
        ClientConfig(name, tuple(parse_bootstrap(cluster.bootstrap)), isolation_level=trial.level)
        for name, (cluster, _) in zip(("source", "destination"), sides, strict=True)
    )
    logs = None
    while logs is None or logs != _logs(made, sides):
        # The cleaner may have been at work once more.
        logs = _logs(made, sides)
        (trial.report,) = verify(ours, theirs, {trial.topic: trial.copy_topic}, group="none").partitions
    here, there = (_side(*side, log, trial.is_compacted) for side, log in zip(sides, logs, strict=True))
    trial.truth = Truth(here, there)
    return trial


def _logs(made: _Made, sides: Sequence[tuple[KafkaCluster, str]]) -> list[list[Placed]]:
    (source, topic), (destination, copy) = sides
    return [_read(source, topic, made.tool.isolation), _read(destination, copy)]


def _clean(trial: Trial, cluster: KafkaCluster, topic: str) -> None:
    """Let the cleaner remove what it can of a topic."""
    before = len(_read(cluster, topic))
    compacted = {name: value for name, value in COMPACTED.items() if name != "segment.ms"}
    alter_topic(cluster.bootstrap, topic, compacted)
    with suppress(TimedOut):
        wait_until(
            lambda: len(_read(cluster, topic)) < before, "the cleaner", _CLEANER_TIMEOUT_S, interval_s=0.2
        )
    trial.notes.append(f"{topic} cleaned: {len(_read(cluster, topic))} of {before} records left")


def _pieces(rng: random.Random, found: Sequence[Placed]) -> list[Piece]:
    pieces = []
    at = 0
    while at < len(found):
        part = found[at : at + rng.randrange(1, 60)]
        at += len(part)
        pieces.append(Piece(RecordCodec.NONE, [*part]))
    return pieces


def _read(cluster: KafkaCluster, topic: str, isolation: Isolation = "read_committed") -> list[Placed]:
    found = read_topic(cluster.bootstrap, topic, isolation)[0]
    return [
        Placed(each.offset, Content(each.timestamp, each.key, each.value, each.headers)) for each in found
    ]


def _record(item: Content) -> Record:
    return Record(item.key, item.value, item.headers, item.timestamp)


def _side(cluster: KafkaCluster, topic: str, records: list[Placed], is_compacted: bool) -> LogSide:
    """Return a log; one that is compacted has no markers, so all other offsets are holes."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    start, end = (
        admin.list_offsets({partition: which})[partition].result().offset
        for which in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    taken = {each.offset for each in records}
    side = LogSide(records, start, end)
    if is_compacted:
        side = replace(side, holes=[each for each in range(start, end) if each not in taken])
    return side


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
