"""A mirror maker, from its command line on, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from tests.mirrormaker.makers import BOTH_WAYS, Makers, config_of
from tests.world.contents import batches_of
from tests.world.faults import offer
from tests.world.waiting import wait_until

ROOT = Path(__file__).parents[2]


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


def test_batch_may_expand_to_four_times_the_largest_one_of_its_topic(makers: Makers) -> None:
    makers.source.create_topic("large", 1, {"max.message.bytes": "20000000"})
    sender = Producer(
        {
            "bootstrap.servers": makers.source.bootstrap,
            "compression.type": "zstd",
            "message.max.bytes": 100_000_000,
        }
    )
    sender.produce("large", bytes(70_000_000), partition=0)  # more than 64 MiB
    assert sender.flush(30) == 0
    makers.producer_properties = "compression.type=zstd\n"
    maker = makers.start(include="large")
    wait_until(lambda: makers.committed("large", 1) == makers.ends("large") == {0: 1}, 30)
    assert maker.end().records == 1


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
def test_topic_created_between_runs_is_mirrored_whole_with_latest(makers: Makers, way: list[str]) -> None:
    timing = Timing(one_start_ms=0)
    makers.consumer_properties = "auto.offset.reset=latest\n"
    makers.produce(9)
    maker = makers.start(*way, include="orders.*", timing=timing)
    wait_until(lambda: makers.committed() == makers.ends(), 30)
    told = "with auto.offset.reset=latest 3 partitions begin at their ends"
    wait_until(lambda: any(told in each for each in maker.notices))
    maker.end()
    makers.source.topics.grow(makers.source.topics.topic("orders"), 4)
    makers.source.create_topic("orders.new", 1)
    makers.know_anew()
    makers.produce(4, partitions=4)
    makers.produce(5, "orders.new", 1)
    maker = makers.start(*way, include="orders.*", timing=timing)
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
    timing = Timing(deletion_confirmed_s=0.2)
    maker = makers.start("--use.raw.bytes", timing=timing)
    wait_until(lambda: makers.is_copied() and makers.committed() == makers.ends(), 30)
    makers.destination.topics.delete(makers.destination.topics.topic("orders"))
    assert re.search(r"deleted.*mirrored", maker.result().stopped["orders-0"])
    again = makers.start("--use.raw.bytes", timing=timing).result()
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
    assert any("offset 2 of compact-0" in each for each in maker.warnings)
    assert makers.committed("compact", 1) == {0: 5}


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
    timing = Timing(prepare_retry_s=0.2)
    maker = makers.start("--use.raw.bytes", include="orders.*", timing=timing)
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


@pytest.mark.parametrize(("oldest", "warnings"), [(4, 0), (5, 1)])
def test_start_warns_once_if_the_source_does_not_keep_positions(
    makers: Makers, oldest: int, warnings: int
) -> None:
    offer(makers.source, ApiKey.OFFSET_COMMIT, oldest=oldest, newest=9)
    makers.produce(30)
    maker = makers.start("--use.raw.bytes")
    wait_until(makers.is_copied, 30)
    assert maker.end().exit_code == 0
    assert makers.committed() == makers.ends()
    told = [each for each in maker.warnings if "If no mirror of group 'makers' runs for 7 days" in each]
    assert len(told) == warnings


def test_one_cluster_on_both_sides_is_refused(makers: Makers) -> None:
    same = Makers(makers.directory, makers.source, makers.source)
    with pytest.raises(ConfigError, match="one cluster"):
        same.start("--use.raw.bytes").result()
