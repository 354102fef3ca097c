"""``shoal groups`` from outside: committed offsets at one cluster in, the next record at the other out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from shoal.cli import main
from shoal_broker import Broker
from tests.world.clusters import TwoBrokers
from tests.world.history import ABORT, COMMIT, History
from tests.world.logs import lose_tail
from tests.world.offsets import commit

TOPIC = "orders"
MIRROR = "shoal.source.destination"

#: More than the milestones that a position has room for: a translation among them needs a count.
TRANSACTIONS = 120


@pytest.fixture
def two() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        yield started.with_settings(group=MIRROR)


def transactions(history: History, count: int = TRANSACTIONS) -> None:
    for number in range(count):
        history.transaction(2, ends=ABORT if number % 5 == 4 else COMMIT).plain(1)


def consumer(broker: Broker, group: str = "reader", **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "isolation.level": "read_committed",
            **config,
        }
    )


def committed(broker: Broker, group: str) -> int:
    """Return the group's offset; below 0 without one."""
    client = consumer(broker, group)
    (found,) = client.committed([TopicPartition(TOPIC, 0)], 20)
    client.close()
    return int(found.offset)


def next_record(broker: Broker, offset: int) -> bytes | None:
    """Return the value of the record that a consumer reads next from an offset on."""
    client = consumer(broker)
    client.assign([TopicPartition(TOPIC, 0, offset)])
    record = client.poll(20)
    client.close()
    assert record is not None
    assert not record.error()
    value: bytes | None = record.value()
    return value


def groups(two: TwoBrokers, *more: str) -> int:
    return main(["groups", *two.between, "--topics", TOPIC, "--groups", ".*", *more])


def assert_reads_on(two: TwoBrokers, group: str) -> None:
    ours, theirs = committed(two.source, group), committed(two.destination, group)
    assert next_record(two.source, ours) == next_record(two.destination, theirs)


def test_groups_after_an_offset_before_the_copys_log_start_skips_nothing(two: TwoBrokers) -> None:
    (history,) = two.topic(TOPIC)
    transactions(history)
    two.run(two.ranges(TOPIC))
    two.destination.log(TOPIC).delete_records(100)
    commit(two.source, "app", 10, TOPIC)
    assert groups(two, "--apply") == 0
    assert committed(two.destination, "app") == 100
    end = two.source.log(TOPIC).log_end_offset
    for offset in (end // 2, end // 2 + 40, end - 40):
        commit(two.source, "app", offset, TOPIC)
        assert groups(two, "--apply") == 0
        assert_reads_on(two, "app")


def test_groups_after_an_offset_that_an_older_shoal_moved_to_the_log_start_skips_nothing(
    two: TwoBrokers,
) -> None:
    """An older shoal called an offset exact that it had moved to the log start, and its commits remain."""
    (history,) = two.topic(TOPIC)
    transactions(history)
    two.run(two.ranges(TOPIC))
    two.destination.log(TOPIC).delete_records(100)
    end = two.source.log(TOPIC).log_end_offset
    for number, offset in enumerate(range(end // 2, end, 37)):
        group = f"app {number}"
        commit(two.destination, group, 100, TOPIC, metadata="translated-by-shoal/1 source 10 100 exact")
        commit(two.source, group, offset, TOPIC)
        assert groups(two, "--apply") == 0
        assert_reads_on(two, group)


def test_groups_after_an_offset_before_the_copys_beginning_skips_nothing(two: TwoBrokers) -> None:
    """A mirror with --start latest has never copied the earlier records."""
    (history,) = two.topic(TOPIC)
    transactions(history)
    begin = two.source.log(TOPIC).log_end_offset
    transactions(history)
    two.run([each._replace(start_offset=begin) for each in two.ranges(TOPIC)])
    commit(two.source, "app", begin // 2, TOPIC)
    assert groups(two, "--apply") == 0
    assert committed(two.destination, "app") == 0
    for offset in (begin + 151, begin + 303):
        commit(two.source, "app", offset, TOPIC)
        assert groups(two, "--apply") == 0
        assert_reads_on(two, "app")


def test_groups_with_a_proof_of_another_record_commits_no_offset(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source lost records that it had mirrored, and got others in their place."""
    (history,) = two.topic(TOPIC)
    history.plain(*[1] * 10)
    two.run(two.ranges(TOPIC))
    History(lose_tail(two.source, TOPIC, 6), base_timestamp=1).plain(*[1] * 4)
    commit(two.source, "app", 7, TOPIC)
    commit(two.source, "before", 3, TOPIC)
    assert groups(two, "--apply", "--prove", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    rows = {each["name"]: each["offsets"][0] for each in report["groups"]}
    assert (rows["app"]["action"], rows["app"]["proof"]["is_same"]) == ("refused", False)
    assert (rows["before"]["action"], rows["before"]["proof"]["is_same"]) == ("committed", True)
    assert committed(two.destination, "app") < 0
    assert committed(two.destination, "before") == 3


@pytest.mark.parametrize(
    "metadata",
    ["shoal-team consumer 3", "start1763-host7", "shoal2", "shoal2{}", "shoal1 [1]", "start1[17]", "first1x"],
)
def test_groups_with_metadata_that_begin_like_a_mirrors_follow(two: TwoBrokers, metadata: str) -> None:
    (history,) = two.topic(TOPIC)
    history.plain(2, 2, 2)
    two.run(two.ranges(TOPIC))
    commit(two.source, "app", 3, TOPIC, metadata=metadata)
    assert groups(two, "--apply") == 0
    assert committed(two.destination, "app") == 3


#: A committed position of each layout, with the values that versions of shoal have written.
_VALUES = (
    '"destination":6,"producer":[12,0,0],"origin":[0,0],"last":77,"topics":[null,null],"epoch":0,'
    '"source_epoch":0,"rules":"r"'
)
POSITIONS = {
    "former layout": "shoal1{" + _VALUES + "}",
    "present layout": "shoal4{" + _VALUES + ',"map":[1,0,0,0],"begin":0,"plan":[]}',
    "start mark": 'start1[1763000000000,[["orders",null]]]',
}


@pytest.mark.parametrize("metadata", POSITIONS.values(), ids=POSITIONS.keys())
def test_groups_leaves_the_positions_of_another_mirror(
    two: TwoBrokers, metadata: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (history,) = two.topic(TOPIC)
    history.plain(2, 2, 2)
    two.run(two.ranges(TOPIC))
    commit(two.source, "other", 3, TOPIC, metadata=metadata)
    assert groups(two, "--apply") == 0
    assert re.search(r"offsets.*positions", capsys.readouterr().err)
    assert committed(two.destination, "other") < 0
