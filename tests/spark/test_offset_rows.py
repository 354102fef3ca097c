"""The offset map of a mirror as rows, without Spark itself."""

from __future__ import annotations

import pytest

from shoal.errors import ShoalError
from shoal.mirroring.model.offset_map import Milestone, OffsetMap, Stretch
from shoal.mirroring.model.options import default_group
from shoal.spark.offset_rows import rows_of
from shoal.spark.options import ReadOptions
from shoal.spark.source import BatchReader
from tests.two_brokers import ABORT, TwoBrokers


def rows(brokers: TwoBrokers, **more: str) -> list[tuple[object, ...]]:
    given = {"kafka.bootstrap.servers": brokers.source.bootstrap, "rows": "offsets"}
    topics = {} if "assign" in more else {"subscribe": "topic"}
    reader = BatchReader(ReadOptions.parse(given | topics | more, streaming=False))
    (task,) = reader.partitions()
    return list(reader.read(task))


def mirror_with_transactions(brokers: TwoBrokers) -> None:
    """Mirror two partitions; the second one has a transaction."""
    first, second = brokers.topic(partitions=2)
    first.plain(3, 4)
    second.plain(3)
    assert brokers.run().complete
    second.transaction(2, ends=ABORT).plain(2)
    assert brokers.run().complete


MAPS = [
    ("topic", 0, "topic", 0, 7, 0, 7, "known", "exact"),
    ("topic", 0, "topic", 7, None, 7, 7, "known", "ahead"),
    ("topic", 1, "topic", 0, 3, 0, 3, "known", "exact"),
    ("topic", 1, "topic", 3, 6, 3, 3, "known", "exact"),
    ("topic", 1, "topic", 6, 8, 3, 5, "known", "exact"),
    ("topic", 1, "topic", 8, None, 5, 5, "known", "ahead"),
]


def test_row_is_a_stretch_between_two_milestones(brokers: TwoBrokers) -> None:
    mirror_with_transactions(brokers)
    assert rows(brokers, group="mirror") == MAPS
    assert rows(brokers, group="mirror", assign='{"topic": [1]}') == MAPS[2:]


def test_row_has_the_destination_s_name_of_the_topic(brokers: TwoBrokers) -> None:
    mirror_with_transactions(brokers)
    assert {row[2] for row in rows(brokers, group="mirror", rename="topic=copy")} == {"copy"}


def test_group_has_the_default_name_of_both_clusters(brokers: TwoBrokers) -> None:
    other = {"destination.kafka.bootstrap.servers": brokers.destination.bootstrap}
    group = default_group(brokers.source.cluster_id, brokers.destination.cluster_id)
    mirror_with_transactions(brokers.with_settings(group=group))
    assert rows(brokers, **other) == MAPS


def test_group_without_positions_is_refused(brokers: TwoBrokers) -> None:
    brokers.topic()
    with pytest.raises(ShoalError, match=r"'nobody'.*position"):
        rows(brokers, group="nobody")


def test_map_of_a_topic_that_was_created_again_is_refused(brokers: TwoBrokers) -> None:
    mirror_with_transactions(brokers)
    brokers.source.topics.delete(brokers.source.topics.topic("topic"))
    brokers.source.create_topic("topic", 2)
    with pytest.raises(ShoalError, match=r"created.*'mirror'"):
        rows(brokers, group="mirror")


def test_exactness_of_a_stretch_is_that_of_its_offsets() -> None:
    offsets = OffsetMap(
        (
            Milestone(0, 0),
            Milestone(5, 5),
            Milestone(9, 5),
            Milestone(9, 7, Stretch.BROKEN),
            Milestone(12, 10),
            Milestone(20, 12),
            Milestone(30, 20, Stretch.UNPROVED),
        )
    )
    assert [row[4:] for row in rows_of(offsets)] == [
        ("known", "exact"),
        ("known", "exact"),
        ("broken", "at least"),
        ("known", "exact"),
        ("known", "counted"),
        ("unproved", "counted"),
        ("known", "ahead"),
    ]
    repeated = offsets.reached(30, 22, Stretch.REPEATED).reached(35, 27)
    assert [row[5] for row in rows_of(repeated)] == [
        *["at least"] * 7,
        *("exact", "ahead"),
    ]
