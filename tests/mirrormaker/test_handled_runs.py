"""A mirror maker with a listener or a handler, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Producer

from shoal.client.cluster import Cluster
from shoal.client.consumer import ConsumerRecord, RawRecord
from shoal.client.coordinator import Coordinator, MemberId
from shoal.client.groups import group_assignment
from shoal.client.producer.producer import partition_of_key
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused, GroupHeld, ShoalError
from shoal.handlers import (
    MirrorMakerMessageHandler,
    MirrorMakerRawBytesMessageHandler,
    MirrorMakerRebalanceListener,
    ProducerRecord,
)
from shoal.mirrormaker.destination_topics import DestinationTopics
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal_broker import Broker
from tests.group_member import GroupMember
from tests.mirrormaker.makers import BOTH_WAYS, Maker, Makers, config_of
from tests.world.contents import batches_of
from tests.world.history import ABORT, COMMIT, History
from tests.world.waiting import wait_until


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
    with pytest.raises(ShoalError, match=r"before_starting.*no"):
        maker.result()


class Renaming(MirrorMakerRawBytesMessageHandler):
    def handle(self, batch: RawRecord) -> list[RawRecord]:
        return [] if batch.topic == "noise" else [replace(batch, topic=f"west.{batch.topic}")]


def test_raw_handler_renames_and_drops_whole_batches(makers: Makers) -> None:
    makers.source.create_topic("noise", 1)
    makers.produce(30)
    makers.produce(10, "noise", 1)
    rename = ["--message.handler", f"{__name__}:{Renaming.__name__}"]
    maker = makers.start("--use.raw.bytes", *rename, include="orders|noise")
    wait_until(lambda: makers.copied("west.orders") == makers.of_source(), 30)
    wait_until(lambda: makers.committed("noise", 1) == {0: 10}, 30)
    summary = maker.end()
    assert makers.copied() == makers.copied("noise") == []
    assert makers.committed() == makers.ends()
    fetched, sent = _bytes(makers.source, "orders", "noise"), _bytes(makers.destination, "west.orders")
    assert (summary.records, summary.bytes_in, summary.bytes_out) == (40, fetched, sent)


def _bytes(broker: Broker, *topics: str) -> int:
    logs = [log for topic in topics for log in broker.topics.topic(topic).logs]
    return sum(len(each.view) for log in logs for each in batches_of(log))


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
    assert any(re.search(r"Doubling\b.*ValueError: seven", each) for each in maker.warnings)


class Yielding(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> Iterator[ProducerRecord]:  # type: ignore[override]
        yield ProducerRecord.of(record)


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


@pytest.mark.parametrize("memory", [1000, 1100])  # without and with room for key and value alone
def test_output_larger_than_the_buffer_is_a_send_failure(makers: Makers, memory: int) -> None:
    makers.producer_properties = f"buffer.memory={memory}\n"
    makers.produce(1, size=1075)
    summary = makers.start("--message.handler", f"{__name__}:Yielding").result()
    assert f"buffer.memory={memory} as a whole" in summary.stopped["orders-0"]


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
    def refused(topics: object, topic: str) -> int:
        raise AccessRefused("the destination cluster's broker", "its password was changed")

    monkeypatch.setattr(DestinationTopics, "count_partitions", refused)
    makers.produce(30)
    maker = makers.start("--message.handler", f"{__name__}:Yielding", "--abort.on.send.failure", "false")
    with pytest.raises(ShoalError, match=r"password.*changed"):
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
    assert not any("do not leave" in each for each in maker.warnings), "it left them at the end"


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


class Slow(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        time.sleep(0.05)
        return [ProducerRecord.of(record)]


def test_slow_handler_does_not_delay_the_end(makers: Makers) -> None:
    makers.produce(1_500)  # for 75 s of the handler
    maker = makers.start("--message.handler", f"{__name__}:Slow")
    wait_until(lambda: sum(map(len, makers.copied())) > 0, 30)
    assert maker.end().exit_code == 0
    copied = makers.copied()
    assert sum(map(len, copied)) < 1_500
    assert makers.committed() == {number: len(each) for number, each in enumerate(copied)}
    assert [each[: len(part)] for each, part in zip(makers.of_source(), copied, strict=True)] == copied


class Routing(MirrorMakerMessageHandler):
    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        topic = "elsewhere" if record.offset else record.topic
        return [replace(ProducerRecord.of(record), topic=topic)]


def test_silent_destination_is_waited_for_and_nothing_is_skipped(makers: Makers) -> None:
    patience_s = 0.3
    makers.produce(3)
    routing = "--message.handler", f"{__name__}:Routing", "--abort.on.send.failure", "false"
    maker = makers.start(*routing, timing=Timing(handler_patience_s=patience_s))
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


class Beyond(MirrorMakerMessageHandler):
    """Sends one partition's records to a partition that neither cluster has."""

    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        made = ProducerRecord.of(record)
        return [replace(made, partition=7)] if record.partition == 1 else [made]


class BatchBeyond(MirrorMakerRawBytesMessageHandler):
    def handle(self, batch: RawRecord) -> list[RawRecord]:
        return [replace(batch, partition=7)] if batch.partition == 1 else [batch]


@pytest.mark.parametrize("aborts", [True, False])
@pytest.mark.parametrize(
    ("handler", "way"), [(Beyond, []), (BatchBeyond, ["--use.raw.bytes"])], ids=["deep", "raw"]
)
def test_partition_that_stays_missing_is_a_send_failure(
    makers: Makers, handler: type, way: list[str], aborts: bool
) -> None:
    makers.produce(6)
    options = ["--message.handler", f"{__name__}:{handler.__name__}", *way]
    maker = makers.start(
        *options, "--abort.on.send.failure", str(aborts), timing=Timing(handler_patience_s=0.3)
    )
    if aborts:
        summary = maker.result()
        assert "orders-7" in summary.stopped["orders-1"]
    else:
        wait_until(lambda: makers.committed() == makers.ends(), 60)
        summary = maker.end()
        assert makers.copied()[0] == makers.of_source()[0]
        assert makers.copied()[2] == makers.of_source()[2]
    assert summary.exit_code == (1 if aborts else 4)


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


class Hashing(MirrorMakerMessageHandler):
    """As docs/from-mirrormaker.md shows it: each record goes to the partition of its key."""

    def handle(self, record: ConsumerRecord) -> list[ProducerRecord]:
        return [replace(ProducerRecord.of(record), partition=None)]


def test_output_without_a_partition_has_that_of_its_key(makers: Makers) -> None:
    makers.produce(60)
    maker = makers.start("--message.handler", f"{__name__}:Hashing")
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
