"""A partition without a position begins, or stops at a copy that is not empty."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, committed_by_groups
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers, recreate
from tests.world.control import Watched, incidents_of
from tests.world.faults import answers
from tests.world.history import History

PARTITION = TopicPartition("topic", 0)
GOES_ON = frozenset({IncidentKind.SOURCE_RESET})


def create_source_again(brokers: TwoBrokers) -> History:
    """Delete the source topic and create it again, empty; Kafka deletes its positions with it."""
    return recreate(brokers.source, with_offsets=True)


@pytest.mark.parametrize("policy", [frozenset(), GOES_ON])
def test_copy_whose_position_was_deleted_stops_and_names_adopt(
    brokers: TwoBrokers, history: History, policy: frozenset[IncidentKind]
) -> None:
    brokers = brokers.with_settings(continue_after=policy)
    history.plain(2, 3)
    assert brokers.run().complete
    brokers.forget_pairs()
    history.plain(1)

    (stopped,) = brokers.run().stopped

    assert re.search(r"topic-0\b.*destination.*\b0 to 4\b.*--adopt", stopped.reason)
    assert not stopped.can_heal
    assert brokers.copied() == history.committed[:5]
    assert brokers.with_settings(adopt=True).run().complete
    brokers.assert_exact(history)


def test_copy_without_a_position_that_others_write_to_begins_behind_their_records(
    brokers: TwoBrokers, history: History
) -> None:
    others = History(brokers.destination.log("topic")).plain(2)
    history.plain(1, 2)
    assert brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE).run().complete
    assert brokers.copied() == [*others.committed, *history.committed]


def test_source_that_was_never_so_long_as_the_copy_is_another_topic(
    brokers: TwoBrokers, history: History
) -> None:
    brokers = brokers.with_settings(continue_after=GOES_ON)
    history.plain(5, 5)
    assert brokers.run().complete
    new = create_source_again(brokers).plain(2, 3)
    latest = brokers.ranges()[0]._replace(start_offset=new.next_offset)
    control = Watched()

    assert brokers.run([latest], control).complete  # all of it, also with --start latest

    assert brokers.copied() == [*history.committed, *new.committed]
    (kind, reason, lost, has_continued), *_ = incidents_of(control)
    assert (kind, lost, has_continued) == ("source-reset", None, True)
    assert "created again" in reason


def test_copy_of_another_group_stops(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    brokers.run()
    (stopped,) = brokers.with_settings(group="another").run().stopped
    assert "--adopt" in stopped.reason
    brokers.assert_exact(history)


# The groups that have positions of the same copies


def test_committed_by_groups_yields_each_group_that_committed_something(brokers: TwoBrokers) -> None:
    brokers.topic("topic", 2)
    with Cluster(brokers.settings.source) as cluster:
        for group, offset in (("one", 1), ("two", 2)):
            commit_offsets(cluster, group, {PARTITION: Committed(offset, "")}, MemberId())
        commit_offsets(cluster, "other", {TopicPartition("topic", 1): Committed(3, "")}, MemberId())
        found = dict(committed_by_groups(cluster, [PARTITION]))
        assert {group: each[PARTITION].offset for group, each in found.items()} == {"one": 1, "two": 2}
        assert dict(committed_by_groups(cluster, [])) == {}


def test_committed_by_groups_leaves_out_a_group_that_cannot_be_read(brokers: TwoBrokers) -> None:
    brokers.topic()
    with Cluster(brokers.settings.source) as cluster:
        for group in ("one", "two"):
            commit_offsets(cluster, group, {PARTITION: Committed(1, "")}, MemberId())

        def refuse_one(response: Any) -> Any:
            for each in response.groups:
                if each.group_id == "one":
                    each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return response

        answers(brokers.source, ApiKey.OFFSET_FETCH, refuse_one)
        assert list(dict(committed_by_groups(cluster, [PARTITION]))) == ["two"]
