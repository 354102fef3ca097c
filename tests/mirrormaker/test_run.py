"""A mirror maker, from its command line on, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition

from shoal.broker import Broker
from shoal.cli import make_parser
from shoal.cli.mirror_maker import parse
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.config import ClientConfig
from shoal.client.consumer import ConsumerRecord, RawRecord
from shoal.client.coordinator import Coordinator, MemberId, group_assignment
from shoal.client.producer.partitioner import partition_of_key
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused, ConfigError, GroupHeld, ShoalError
from shoal.handlers import (
    MirrorMakerMessageHandler,
    MirrorMakerRawBytesMessageHandler,
    MirrorMakerRebalanceListener,
    ProducerRecord,
)
from shoal.mirroring.driver import beginnings
from shoal.mirroring.model.progress import Progress, Summary
from shoal.mirrormaker import task as handled
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.spark.api import run_mirror_maker
from shoal.topic_partition import TopicPartition
from tests.group_member import GroupMember
from tests.spark.without_jvm import without_jvm
from tests.two_brokers import ABORT, COMMIT, Content, History, batches_of, content_of, wait_until

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]

CONSUMER = """\
bootstrap.servers={servers}
group.id=makers
auto.offset.reset=earliest
key.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
session.timeout.ms=6000
heartbeat.interval.ms=100
metadata.max.age.ms=300
"""

PRODUCER = "bootstrap.servers={servers}\n"


class Maker:
    """A mirror maker that runs in a thread."""

    def __init__(self, arguments: list[str]) -> None:
        options = parse(make_parser().parse_args(["mirror-maker", *arguments]))
        self.options = replace(options, mirror=replace(options.mirror, refresh_s=1.0))
        self.stop = threading.Event()
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self.progress: list[Progress] = []
        self._outcome: Summary | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = run_mirror_maker(
                self.options,
                on_progress=self.progress.append,
                on_warning=self.warnings.append,
                on_notice=self.notices.append,
                stop=self.stop,
            )
        except BaseException as error:
            self._outcome = error

    @property
    def partitions(self) -> int:
        """How many are its own, as it said last; -1 before it has said anything."""
        return self.progress[-1].partitions if self.progress else -1

    def end(self) -> Summary:
        """Stop the run, and return its summary or raise its error."""
        self.stop.set()
        return self.result()

    def result(self, timeout_s: float = 60) -> Summary:
        """Wait until it ends by itself."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the mirror maker does not end"
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()


class Makers:
    """Two clusters, and mirror makers between them."""

    def __init__(self, directory: Path, source: Broker, destination: Broker) -> None:
        self.directory = directory
        self.source = source
        self.destination = destination
        self._producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0})
        self._sent = 0
        self.consumer_properties = ""
        self.producer_properties = ""

    def start(self, *arguments: str, include: str = "orders") -> Maker:
        files = {
            "consumer": CONSUMER.format(servers=self.source.bootstrap) + self.consumer_properties,
            "producer": PRODUCER.format(servers=self.destination.bootstrap) + self.producer_properties,
        }
        given = []
        for name, text in files.items():
            file = self.directory / f"{name}-{time.monotonic_ns()}.properties"
            file.write_text(text)
            given += [f"--{name}.config", str(file)]
        return Maker([*given, "--include", include, "--offset.commit.interval.ms", "200", *arguments])

    def produce(self, count: int, topic: str = "orders", partitions: int = 3, size: int = 20) -> None:
        for _ in range(count):
            self._producer.produce(
                topic,
                b"value %d " % self._sent + b"x" * size,
                b"key %d" % self._sent,
                partition=self._sent % partitions,
                headers={"number": b"%d" % self._sent},
            )
            self._sent += 1
        assert self._producer.flush(20) == 0

    def know_anew(self) -> None:
        """Use the current number of partitions for later records."""
        self._producer = Producer({"bootstrap.servers": self.source.bootstrap, "linger.ms": 0})

    def of_source(self, topic: str = "orders") -> list[list[Content]]:
        return [content_of(log) for log in self.source.topics.topic(topic).logs]

    def copied(self, topic: str = "orders") -> list[list[Content]]:
        found = self.destination.topics.get(topic)
        return [content_of(log) for log in found.logs] if found else []

    def is_copied(self, topic: str = "orders") -> bool:
        return self.copied(topic) == self.of_source(topic)

    def committed(self, topic: str = "orders", partitions: int = 3) -> dict[int, int]:
        config = config_of(self.source)
        with Cluster(config) as cluster:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            found = fetch_offsets(cluster, "makers", asked)
        return {partition.partition: each.offset for partition, each in found.items()}

    def ends(self, topic: str = "orders") -> dict[int, int]:
        logs = self.source.topics.topic(topic).logs
        return {number: log.log_end_offset for number, log in enumerate(logs)}


def config_of(broker: Broker) -> ClientConfig:
    return ClientConfig.from_properties("source", {"bootstrap.servers": broker.bootstrap})[0]


@pytest.fixture
def makers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Makers]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with (
        without_jvm(monkeypatch),
        Broker(cluster_id="source") as source,
        Broker(cluster_id="destination") as destination,
    ):
        source.create_topic("orders", 3)
        yield Makers(tmp_path, source, destination)


BOTH_WAYS = pytest.mark.parametrize("way", [["--use.raw.bytes"], []], ids=["raw", "deep"])


@BOTH_WAYS
def test_new_records_are_mirrored_and_committed(makers: Makers, way: list[str]) -> None:
    makers.produce(30)
    maker = makers.start(*way)
    wait_until(makers.is_copied, 30)
    makers.produce(30)
    wait_until(makers.is_copied, 30)
    summary = maker.end()
    assert summary.exit_code == 0
    assert summary.records == 60
    assert makers.committed() == makers.ends()


def test_batches_without_raw_bytes_follow_the_producer_s_properties(makers: Makers) -> None:
    makers.producer_properties = "compression.type=zstd\nbatch.size=2048\n"
    for _ in range(40):
        makers.produce(3)
    makers.produce(3, size=10_000)
    maker = makers.start()
    wait_until(makers.is_copied, 30)
    maker.end()
    sent = [batches_of(log) for log in makers.source.topics.topic("orders").logs]
    made = [batches_of(log) for log in makers.destination.topics.topic("orders").logs]
    assert all(batch.header.codec_id == Codec.ZSTD for batches in made for batch in batches)
    assert all(batch.header.size <= 2048 for batches in made for batch in batches)
    assert all(len(batches) == 41 for batches in sent)
    assert all(len(batches) < 10 for batches in made)


def test_two_makers_share_partitions_and_one_takes_over_the_other_s(makers: Makers) -> None:
    makers.produce(30)
    first = makers.start("--use.raw.bytes")
    wait_until(makers.is_copied, 30)
    second = makers.start("--use.raw.bytes")
    wait_until(lambda: any("partitions assigned" in each for each in second.notices), 30)
    for _ in range(10):
        makers.produce(30)
    wait_until(makers.is_copied, 30)
    wait_until(lambda: min(first.partitions, second.partitions) > 0, 30)
    wait_until(lambda: first.partitions + second.partitions == 3, 30)
    assert len(first.progress[-1].stopped) == 0
    assert first.end().exit_code == 0
    makers.produce(30)
    wait_until(makers.is_copied, 30)
    assert second.end().exit_code == 0
    assert makers.is_copied()  # once: nothing more came
    assert makers.committed() == makers.ends()


def test_partitions_are_shared_with_another_consumer_of_the_group(makers: Makers) -> None:
    makers.produce(30)
    maker = makers.start("--use.raw.bytes")
    wait_until(makers.is_copied, 30)
    consumer = Consumer(
        {
            "bootstrap.servers": makers.source.bootstrap,
            "group.id": "makers",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        wait_until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()), 30)
        theirs = {each.partition for each in consumer.assignment()}
        assert len(theirs) in (1, 2)
        wait_until(lambda: maker.partitions == 3 - len(theirs), 30)
        makers.produce(30)

        def ours_are_copied() -> bool:
            consumer.poll(0.0)
            copied, sent = makers.copied(), makers.of_source()
            return all(copied[each] == sent[each] for each in range(3) if each not in theirs)

        wait_until(ours_are_copied, 30)
        assert all(makers.copied()[each] != makers.of_source()[each] for each in theirs)
        # The other consumer's commits count: the maker continues after them.
        ends = makers.ends()
        consumer.commit(
            offsets=[Partition("orders", each, ends[each]) for each in theirs], asynchronous=False
        )
    finally:
        consumer.close()
    wait_until(lambda: maker.partitions == 3, 30)
    before = makers.copied()
    makers.produce(30)
    after = makers.of_source()
    wait_until(lambda: all(len(each) == len(before[n]) + 10 for n, each in enumerate(makers.copied())), 30)
    assert [each[-10:] for each in makers.copied()] == [each[-10:] for each in after]
    assert maker.end().exit_code == 0


def test_run_begins_at_mirror_maker_1_s_offsets_and_continues_at_positions(makers: Makers) -> None:
    makers.produce(30)
    makers.destination.create_topic("orders", 3)
    elsewhere = Producer({"bootstrap.servers": makers.destination.bootstrap})
    elsewhere.produce("orders", b"hashed elsewhere", partition=0)
    assert elsewhere.flush(20) == 0
    with Cluster(config_of(makers.source)) as cluster:
        positions = {TopicPartition("orders", number): Committed(4, "") for number in range(3)}
        assert not commit_offsets(cluster, "makers", positions, MemberId())
    for way in (["--use.raw.bytes"], []):  # and by the other rules, behind a clean end
        maker = makers.start(*way)

        def is_behind() -> bool:
            sent = [each[4:] for each in makers.of_source()]
            return [makers.copied()[0][1:], *makers.copied()[1:]] == sent

        wait_until(is_behind, 30)
        assert maker.end().exit_code == 0
        makers.produce(30)


def test_run_without_position_begins_at_auto_offset_reset(makers: Makers) -> None:
    makers.produce(30)
    makers.consumer_properties = "auto.offset.reset=latest\n"
    maker = makers.start("--use.raw.bytes")
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    makers.produce(3)
    makers.source.create_topic("orders.new", 1)  # not there at the start: whole, whatever it says
    wait_until(lambda: makers.copied() == [each[-1:] for each in makers.of_source()], 30)
    maker.end()


def test_new_topic_is_mirrored_whole(makers: Makers) -> None:
    makers.consumer_properties = "auto.offset.reset=latest\n"
    maker = makers.start("--use.raw.bytes", include="orders.*")
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    makers.source.create_topic("orders.new", 2)
    makers.produce(10, "orders.new", 2)
    wait_until(lambda: makers.copied("orders.new") == makers.of_source("orders.new"), 30)
    maker.end()
    assert sum(map(len, makers.copied("orders.new"))) == 10


@BOTH_WAYS
def test_topic_created_between_runs_is_mirrored_whole_with_latest(
    makers: Makers, way: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginnings, "_ONE_START_MS", 0)
    makers.consumer_properties = "auto.offset.reset=latest\n"
    makers.produce(9)
    maker = makers.start(*way, include="orders.*")
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    told = "with auto.offset.reset=latest 3 partitions begin at their ends"
    wait_until(lambda: any(told in each for each in maker.notices))
    maker.end()
    makers.source.topics.grow(makers.source.topics.topic("orders"), 4)
    makers.source.create_topic("orders.new", 1)
    makers.know_anew()
    makers.produce(4, partitions=4)
    makers.produce(5, "orders.new", 1)
    maker = makers.start(*way, include="orders.*")
    wait_until(lambda: makers.copied("orders.new") == makers.of_source("orders.new"), 30)
    wait_until(lambda: makers.copied()[3:] == makers.of_source()[3:] != [[]], 30)
    wait_until(lambda: makers.committed(partitions=4) == makers.ends(), 30)
    maker.end()
    assert [len(each) for each in makers.copied()[:3]] == [len(each) - 3 for each in makers.of_source()[:3]]


def test_two_makers_starting_together_with_latest_begin_at_the_ends(makers: Makers) -> None:
    makers.consumer_properties = "auto.offset.reset=latest\n"
    makers.produce(30)
    both = [makers.start("--use.raw.bytes") for _ in range(2)]
    wait_until(lambda: sorted(each.partitions for each in both) == [1, 2], 30)
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    makers.produce(3)
    wait_until(lambda: makers.copied() == [each[-1:] for each in makers.of_source()], 30)
    for each in both:
        each.end()


# A copy that was deleted


def test_copy_deleted_while_idle_ends_the_run(makers: Makers) -> None:
    makers.produce(9)
    maker = makers.start("--use.raw.bytes")
    wait_until(lambda: makers.is_copied() and makers.committed() == makers.ends(), 30)
    makers.destination.topics.delete(makers.destination.topics.topic("orders"))
    assert "was deleted since it was mirrored" in maker.result().stopped["orders-0"]
    again = makers.start("--use.raw.bytes").result()
    assert sorted(again.stopped) == ["orders-0", "orders-1", "orders-2"]
    assert makers.copied() == []


# Refusals of the destination


def refuse_middle(makers: Makers) -> None:
    """Send a record without a key, which a compacted topic refuses, between others that have one."""
    makers.source.create_topic("compact", 1)
    makers.destination.create_topic("compact", 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": makers.source.bootstrap, "linger.ms": 0})
    for key in (b"a", b"b", None, b"c", b"d"):
        producer.produce("compact", b"value", key, partition=0)
        assert producer.flush(20) == 0


@BOTH_WAYS
def test_refused_batch_ends_the_run_after_committing_earlier_ones(makers: Makers, way: list[str]) -> None:
    refuse_middle(makers)
    maker = makers.start(*way, include="compact")
    summary = maker.result()
    assert summary.exit_code == 1
    assert "INVALID_RECORD" in summary.stopped["compact-0"]
    committed = makers.committed("compact", 1)
    assert committed == {0: 2} if way else committed[0] <= 2
    assert [each.key for each in makers.copied("compact")[0]] == [b"a", b"b"][: committed[0]]


@BOTH_WAYS
def test_refused_batch_is_skipped_if_configured(makers: Makers, way: list[str]) -> None:
    refuse_middle(makers)
    maker = makers.start(*way, "--abort.on.send.failure", "false", include="compact")
    wait_until(lambda: bool(makers.copied("compact")) and len(makers.copied("compact")[0]) == 4, 30)
    summary = maker.end()
    assert [each.key for each in makers.copied("compact")[0]] == [b"a", b"b", b"c", b"d"]
    assert summary.exit_code == 4
    assert [(each.kind, each.lost) for each in summary.incidents] == [("send-failure", 1)]
    assert any("refuses offset 2 of compact-0" in each for each in maker.warnings)
    assert makers.committed("compact", 1) == {0: 5}


# Listeners and handlers


def test_listener_receives_assigned_and_revoked_partitions(makers: Makers) -> None:
    makers.produce(6)
    CALLS.clear()
    maker = makers.start("--use.raw.bytes", "--consumer.rebalance.listener", f"{__name__}:Listening")
    wait_until(makers.is_copied, 30)
    came = [each for each in CALLS if each[0] == "start"]
    assert came[0][2] == {"orders": dict.fromkeys(range(3), came[0][1])}
    maker.end()
    assert CALLS[-1] == ("release", {"orders": frozenset(range(3))})


CALLS: list[tuple[object, ...]] = []


class Listening(MirrorMakerRebalanceListener):
    def before_releasing_partitions(self, partition_ownership):  # type: ignore[no-untyped-def]
        CALLS.append(("release", partition_ownership))

    def before_starting_fetchers(self, consumer_id, partition_assignment):  # type: ignore[no-untyped-def]
        CALLS.append(("start", consumer_id, partition_assignment))


class Looking(MirrorMakerRebalanceListener):
    """Calls a test's function before partitions are released."""

    look: Callable[[], object]

    def before_releasing_partitions(self, partition_ownership):  # type: ignore[no-untyped-def]
        CALLS.append(("seen", Looking.look()))


@BOTH_WAYS
@pytest.mark.parametrize("handler", [[], ["--message.handler"]], ids=["engine", "handler"])
def test_listener_sees_commits_made_and_the_group_held(
    makers: Makers, way: list[str], handler: list[str]
) -> None:
    makers.produce(30)
    CALLS.clear()
    kind = "MirrorMakerRawBytesMessageHandler" if way else "MirrorMakerMessageHandler"
    given = [*way, *(each for option in handler for each in (option, f"shoal.handlers:{kind}"))]
    looking = ["--consumer.rebalance.listener", f"{__name__}:Looking"]
    maker = makers.start(*given, *looking, "--offset.commit.interval.ms", "60000")
    wait_until(makers.is_copied, 30)
    Looking.look = staticmethod(
        lambda: (makers.committed(), makers.source.groups.read("makers", lambda group: len(group.members)))
    )
    maker.end()
    assert CALLS[-1] == ("seen", (makers.ends(), 1))
    assert makers.source.groups.read("makers", lambda group: len(group.members)) == 0


class FailingListener(MirrorMakerRebalanceListener):
    def before_starting_fetchers(self, consumer_id, partition_assignment):  # type: ignore[no-untyped-def]
        raise RuntimeError("no more room")


def test_failing_listener_ends_the_run_and_is_named(makers: Makers) -> None:
    maker = makers.start("--consumer.rebalance.listener", f"{__name__}:FailingListener")
    with pytest.raises(ShoalError, match=r"FailingListener failed in before_starting.*no more room"):
        maker.result()


def test_ready_handlers_rename_filter_and_convert(makers: Makers) -> None:
    makers.produce(30)
    rename = ["--message.handler", "shoal.handlers:RenameTopics", "--message.handler.args", r"(.*)=west.\1"]
    maker = makers.start("--use.raw.bytes", *rename)
    wait_until(lambda: makers.copied("west.orders") == makers.of_source(), 30)
    maker.end()
    assert makers.copied() == []
    assert makers.committed() == makers.ends()
    makers.source.create_topic("noise", 1)
    makers.produce(30)
    makers.produce(10, "noise", 1)
    only = ["--message.handler", "shoal.handlers:Filter", "--message.handler.args", "topics=orders"]
    maker = makers.start("--use.raw.bytes", *only, include="orders|noise")
    wait_until(lambda: makers.copied() == [each[10:] for each in makers.of_source()], 30)
    wait_until(lambda: makers.committed("noise", 1) == {0: 10}, 30)
    maker.end()
    assert makers.copied("noise") == []
    makers.produce(30)
    convert = ["--message.handler", "shoal.handlers:ConvertCodec", "--message.handler.args", "zstd"]
    maker = makers.start("--use.raw.bytes", *convert)
    wait_until(lambda: makers.copied() == [each[10:] for each in makers.of_source()], 30)
    maker.end()
    logs = makers.destination.topics.topic("orders").logs
    assert {batches_of(log)[-1].header.codec_id for log in logs} == {Codec.ZSTD}


class Doubling(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        made = ProducerRecord.of(record)
        if record.value is not None and record.value.startswith(b"value 7 "):
            raise ValueError("seven")
        return [] if record.offset % 2 else [made, replace(made, value=b"again")]


def test_handler_drops_and_duplicates_and_its_errors_are_skipped(makers: Makers) -> None:
    makers.produce(30)
    handler = ["--message.handler", f"{__name__}:Doubling"]
    maker = makers.start(*handler, "--abort.on.send.fail", "false")
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    summary = maker.end()
    kept = [
        [each for each in records[::2] if not (each.value or b"").startswith(b"value 7 ")]
        for records in makers.of_source()
    ]
    assert [each[::2] for each in makers.copied()] == kept
    assert {each.value for records in makers.copied() for each in records[1::2]} == {b"again"}
    assert summary.exit_code == 4
    assert any("Doubling failed: ValueError: seven" in each for each in maker.warnings)


class Yielding(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> Iterator[ProducerRecord]:  # type: ignore[override]
        yield ProducerRecord.of(record)


def test_handler_may_be_a_generator(makers: Makers) -> None:
    makers.produce(30)
    maker = makers.start("--message.handler", f"{__name__}:Yielding")
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    maker.end()
    assert makers.is_copied()


def test_missing_partitions_are_added_with_a_handler(makers: Makers) -> None:
    makers.destination.create_topic("orders", 1)
    makers.produce(30)
    maker = makers.start("--message.handler", f"{__name__}:Yielding")
    wait_until(makers.is_copied, 30)
    makers.source.topics.grow(makers.source.topics.topic("orders"), 4)
    makers.know_anew()
    makers.produce(40, partitions=4)
    wait_until(makers.is_copied, 30)
    assert maker.end().exit_code == 0


class Garbling(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        key = "text" if (record.value or b"").startswith(b"value 7 ") else record.key
        return [replace(ProducerRecord.of(record), key=key)]  # type: ignore[arg-type]


@pytest.mark.parametrize("aborts", [True, False])
def test_invalid_handler_output_is_a_send_failure_that_names_the_handler(
    makers: Makers, aborts: bool
) -> None:
    makers.produce(30)
    handler = ["--message.handler", f"{__name__}:Garbling"]
    maker = makers.start(*handler, "--abort.on.send.failure", str(aborts))
    said = r"offset 2 of orders-1 cannot be sent: an output of the message handler \S*Garbling cannot be sent"
    if aborts:
        summary = maker.result()
        assert re.search(said, summary.stopped["orders-1"])
    else:
        wait_until(lambda: makers.committed() == makers.ends(), 30)
        summary = maker.end()
        assert any(re.search(said, each) for each in maker.warnings)
    assert summary.exit_code == (1 if aborts else 4)


def test_failed_producer_ends_the_run_and_skips_nothing(makers: Makers) -> None:
    makers.produce(30)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    makers.destination.faults.add(ApiKey.INIT_PRODUCER_ID, error=refused, times=None)
    maker = makers.start("--message.handler", f"{__name__}:Yielding", "--abort.on.send.failure", "false")
    with pytest.raises(ShoalError, match="CLUSTER_AUTHORIZATION_FAILED"):
        maker.result()
    assert set(makers.committed().values()) <= {0}
    assert not any("left out" in each for each in maker.warnings)


def test_refused_login_ends_the_run_and_skips_nothing(
    makers: Makers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(task: object, topic: str) -> int:
        raise AccessRefused("the destination cluster's broker", "its password was changed")

    monkeypatch.setattr(handled._HandlerTask, "_count_partitions", refused)
    makers.produce(30)
    maker = makers.start("--message.handler", f"{__name__}:Yielding", "--abort.on.send.failure", "false")
    with pytest.raises(ShoalError, match="its password was changed"):
        maker.result()
    assert set(makers.committed().values()) <= {0}


def test_refused_writer_ends_the_run_and_skips_nothing(makers: Makers) -> None:
    makers.produce(30)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    makers.destination.faults.add(ApiKey.PRODUCE, error=refused, times=None)
    maker = makers.start("--message.handler", f"{__name__}:Yielding", "--abort.on.send.failure", "false")
    summary = maker.result()
    assert summary.exit_code == 1
    assert any(refused.name in each for each in summary.stopped.values())
    assert set(makers.committed().values()) <= {0}
    assert not any("left out" in each for each in maker.warnings)


def test_lag_is_reported_with_a_handler(makers: Makers) -> None:
    makers.produce(30)
    busy = makers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
    maker = makers.start("--message.handler", f"{__name__}:Yielding")
    wait_until(lambda: bool(maker.progress) and maker.progress[-1].lag_records == 30, 30)
    makers.destination.faults.remove(busy)
    wait_until(makers.is_copied, 30)
    maker.end()


def test_invisible_offsets_are_passed_in_order_with_a_handler(makers: Makers) -> None:
    History(makers.source.log("orders", 0)).transaction(3, ends=COMMIT)
    History(makers.source.log("orders", 1)).plain(2).transaction(3, ends=ABORT)
    busy = makers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
    maker = makers.start("--message.handler", f"{__name__}:Yielding")
    wait_until(lambda: bool(maker.progress) and maker.progress[-1].lag_records == 10, 10)
    assert makers.committed() == {0: 0, 1: 0, 2: 0}
    makers.destination.faults.remove(busy)
    wait_until(lambda: makers.committed() == makers.ends() == {0: 4, 1: 6, 2: 0}, 10)
    wait_until(lambda: maker.progress[-1].records == 5 and maker.progress[-1].lag_records == 0, 10)
    assert maker.end().exit_code == 0


def test_start_position_is_committed_before_any_record(makers: Makers) -> None:
    makers.produce(30)
    makers.consumer_properties = "auto.offset.reset=latest\n"
    rarely = ["--offset.commit.interval.ms", "60000"]
    maker = makers.start("--message.handler", f"{__name__}:Yielding", *rarely)
    wait_until(lambda: makers.committed() == makers.ends(), 30)  # a handler's window is longer than that
    maker.end()
    assert makers.copied() == []


class Slow(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        time.sleep(0.05)
        return [ProducerRecord.of(record)]


def test_slow_handler_does_not_delay_the_end(makers: Makers) -> None:
    makers.produce(1_500)  # for 75 s
    maker = makers.start("--message.handler", f"{__name__}:Slow")
    wait_until(lambda: sum(map(len, makers.copied())) > 0, 30)
    began_at = time.monotonic()
    assert maker.end().exit_code == 0
    assert time.monotonic() - began_at < 30
    copied = makers.copied()
    assert makers.committed() == {number: len(each) for number, each in enumerate(copied)}
    assert [each[: len(part)] for each, part in zip(makers.of_source(), copied, strict=True)] == copied


class Routing(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        topic = "elsewhere" if record.offset else record.topic
        return [replace(ProducerRecord.of(record), topic=topic)]


def test_silent_destination_is_waited_for_and_nothing_is_skipped(
    makers: Makers, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience_s = 0.3
    monkeypatch.setattr(handled, "_PATIENCE_S", patience_s)
    makers.produce(3)
    maker = makers.start("--message.handler", f"{__name__}:Routing", "--abort.on.send.failure", "false")
    wait_until(makers.is_copied, 30)
    silent = makers.destination.faults.add(ApiKey.METADATA, drop="before", times=None)
    makers.produce(27)
    wait_until(
        lambda: any("orders-" in each for progress in maker.progress[-1:] for each in progress.waiting), 30
    )
    since = time.monotonic()
    hits = silent.hits
    wait_until(lambda: silent.hits > hits + 3 and time.monotonic() > since + 4 * patience_s, 30)
    makers.destination.faults.remove(silent)
    wait_until(lambda: makers.copied("elsewhere") == [each[1:] for each in makers.of_source()], 30)
    assert maker.end().exit_code == 0
    assert not any("left out" in each for each in maker.warnings)


def test_failing_handler_ends_the_run_and_is_named(makers: Makers) -> None:
    makers.produce(30)
    summary = makers.start("--message.handler", f"{__name__}:Doubling").result()
    assert summary.exit_code == 1
    assert "Doubling failed: ValueError: seven" in summary.stopped["orders-1"]
    assert summary.ended == "a partition is stopped"
    assert makers.committed()[1] == 2


class RaisingAtTen(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        if (record.partition, record.offset) == (1, 10):
            raise ValueError("ten")
        return [ProducerRecord.of(record)]


class RaisingBatchAtTen(MirrorMakerRawBytesMessageHandler):
    def handle(self, batch: RawRecord) -> list[RawRecord]:
        if batch.partition == 1 and batch.base_offset <= 10 < batch.next_offset:
            raise ValueError("ten")
        return [batch]


@pytest.mark.parametrize(
    ("handler", "way"), [(RaisingAtTen, []), (RaisingBatchAtTen, ["--use.raw.bytes"])], ids=["deep", "raw"]
)
def test_failing_handler_leaves_only_committed_records_at_the_destination(
    makers: Makers, handler: type, way: list[str]
) -> None:
    for _ in range(20):
        makers.produce(15)
    summary = makers.start("--message.handler", f"{__name__}:{handler.__name__}", *way).result()
    assert "ValueError: ten" in summary.stopped["orders-1"]
    committed = makers.committed()
    assert {number: len(records) for number, records in enumerate(makers.copied())} == committed
    assert committed[1] in (range(6, 11) if way else (10,))


class SecondRaising(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        made = ProducerRecord.of(record)
        if (record.partition, record.offset) != (1, 10):
            return [made]
        return [replace(made, key="text"), made, made]  # type: ignore[arg-type]


def test_outputs_after_a_failed_one_are_not_sent(makers: Makers) -> None:
    for _ in range(20):
        makers.produce(15)
    summary = makers.start("--message.handler", f"{__name__}:SecondRaising").result()
    assert "cannot be sent" in summary.stopped["orders-1"]
    assert {number: len(records) for number, records in enumerate(makers.copied())} == makers.committed()


def test_repartition_hashes_keys_like_a_producer(makers: Makers) -> None:
    makers.produce(60)
    maker = makers.start("--repartition")
    wait_until(lambda: sum(map(len, makers.copied())) == 60, 30)
    maker.end()
    for number, records in enumerate(makers.copied()):
        assert {partition_of_key(each.key or b"", 3) for each in records} == {number}
    sent = {each for records in makers.of_source() for each in records}
    assert {each for records in makers.copied() for each in records} == sent


def assignments(maker: Maker) -> int:
    return len([each for each in maker.notices if "assigned" in each])


def has_joined_again(maker: Maker, before: int) -> bool:
    return assignments(maker) > before


def test_expelled_member_rejoins_and_duplicates_nothing(makers: Makers) -> None:
    makers.produce(30)
    maker = makers.start("--use.raw.bytes")
    wait_until(makers.is_copied, 30)
    with Cluster(config_of(makers.source)) as cluster:
        for _ in range(3):
            joined = assignments(maker)
            wait_until(lambda: bool(group_assignment(cluster, "makers")), 30)
            (member,) = group_assignment(cluster, "makers")
            Coordinator(cluster, "makers").leave(MemberId(member))
            makers.produce(30)
            wait_until(partial(has_joined_again, maker, joined), 30)
            makers.produce(30)
    wait_until(makers.is_copied, 30)
    assert maker.end().exit_code == 0
    assert makers.is_copied()
    assert sum("removed this mirror" in each for each in maker.warnings) == 3


def test_group_of_another_protocol_is_not_disturbed(makers: Makers) -> None:
    with Cluster(config_of(makers.source)) as cluster:
        holder = GroupMember(cluster, "makers", protocol="other", instance_id="x", session_timeout_ms=60_000)
        holder.join()
        with pytest.raises(GroupHeld, match="makers"):
            makers.start("--use.raw.bytes").result()
        holder.heartbeat()
        holder.leave()


def test_foreign_records_end_the_run_unless_expected(makers: Makers) -> None:
    makers.produce(30)
    maker = makers.start("--use.raw.bytes")
    wait_until(makers.is_copied, 30)
    other = Producer({"bootstrap.servers": makers.destination.bootstrap})
    other.produce("orders", b"foreign", partition=0)
    assert other.flush(20) == 0
    makers.produce(30)
    summary = maker.result()
    assert summary.exit_code == 1
    assert "orders-0" in summary.stopped
    maker = makers.start("--use.raw.bytes", "--delivery", "at-least-once")
    makers.produce(30)
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    assert maker.end().exit_code == 0
    sent, copied = makers.of_source(), makers.copied()
    assert all({*one} <= {*other} for one, other in zip(sent, copied, strict=True))


# Examples


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory for a user's modules, on the path beside the examples."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_example_of_a_listener_creates_destination_topics(makers: Makers, modules: Path) -> None:
    makers.produce(30)
    args = f"bootstrap.servers={makers.destination.bootstrap} retention.ms=86400000"
    maker = makers.start(
        "--use.raw.bytes",
        "--consumer.rebalance.listener",
        "create_topics:CreateTopics",
        "--consumer.rebalance.listener.args",
        args,
    )
    wait_until(makers.is_copied, 30)
    assert maker.end().exit_code == 0
    assert makers.destination.topics.topic("orders").overrides["retention.ms"] == "86400000"


def test_example_of_a_handler_masks_values(makers: Makers, modules: Path) -> None:
    producer = Producer({"bootstrap.servers": makers.source.bootstrap})
    producer.produce("orders", b"paid by 4111111111111111", partition=0)
    producer.produce("orders", b"ours", partition=0, headers={"internal": b"true"})
    producer.produce("orders", None, b"deleted", partition=0)
    assert producer.flush(20) == 0
    options = ["--message.handler", "mask_values:MaskValues", "--message.handler.args", "[0-9]{12,19}"]
    maker = makers.start(*options)
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    assert maker.end().exit_code == 0
    assert [(each.key, each.value) for each in makers.copied()[0]] == [
        (None, b"paid by ****************"),
        (b"deleted", None),
    ]


def test_documented_handler_works(makers: Makers, modules: Path) -> None:
    page = (ROOT / "docs" / "from-mirrormaker.md").read_text(encoding="utf-8")
    text = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert text
    (modules / "documented.py").write_text(text[1])
    producer = Producer({"bootstrap.servers": makers.source.bootstrap})
    for value in (b"a secret", b"none"):
        producer.produce("orders", value, b"key", partition=0)
    assert producer.flush(20) == 0
    maker = makers.start("--message.handler", "documented:Mask")
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    assert maker.end().exit_code == 0
    assert [(each.key, each.value) for each in makers.copied()[0]] == [(b"key", b""), (b"key", b"none")]


def test_refused_topic_does_not_affect_others(makers: Makers) -> None:
    makers.source.create_topic("orders.bad", 1)
    makers.destination.create_topic("orders", 3)
    makers.destination.faults.add(
        ApiKey.CREATE_TOPICS, times=None, error=ErrorCode.POLICY_VIOLATION, topic="orders.bad"
    )
    makers.produce(30)
    makers.produce(3, "orders.bad", 1)
    maker = makers.start("--use.raw.bytes", include="orders.*")
    wait_until(makers.is_copied, 30)
    wait_until(lambda: any("orders.bad is not mirrored yet" in each for each in maker.warnings), 30)
    makers.destination.faults.clear()
    wait_until(lambda: makers.copied("orders.bad") == makers.of_source("orders.bad"), 30)
    assert maker.end().exit_code == 0


def test_smaller_destination_limit_is_warned_of_and_tried(makers: Makers) -> None:
    makers.destination.create_topic("orders", 3, {"max.message.bytes": "2000"})
    makers.produce(30)
    maker = makers.start("--use.raw.bytes")
    wait_until(makers.is_copied, 30)
    wait_until(lambda: any("max.message.bytes is 2000" in each for each in maker.warnings), 30)
    makers.produce(3, size=3000)
    summary = maker.result()
    assert summary.exit_code == 1
    assert all("MESSAGE_TOO_LARGE" in each for each in summary.stopped.values())


def test_one_cluster_on_both_sides_is_refused(makers: Makers) -> None:
    same = Makers(makers.directory, makers.source, makers.source)
    with pytest.raises(ConfigError, match="one cluster"):
        same.start("--use.raw.bytes").result()
