"""What a partition says that stops before a copy which its group has no pair for."""

from __future__ import annotations

import batches
import pytest
from two_brokers import NOW_MS, Content, History, TwoBrokers, batches_of
from verifying import Item, cut, lay_out

from shoal.client.cluster import Cluster
from shoal.client.groups import Committed, Membership, commit_offsets, committed_by_groups
from shoal.client.metadata import TopicPartition
from shoal.errors import ErrorCode
from shoal.mirroring.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.records import Codec

pytestmark = [pytest.mark.timeout(30), pytest.mark.usefixtures("quick_retries")]

PARTITION = TopicPartition("topic", 0)


def reason(brokers: TwoBrokers) -> str:
    """Run a lane that stops its one partition and writes nothing; return the sentence."""
    end = brokers.destination.log("topic").log_end_offset
    (stopped,) = brokers.start().result().stopped
    assert brokers.destination.log("topic").log_end_offset == end
    return stopped.reason


def twins(history: History, count: int = 3) -> History:
    """Store the same batch again and again: a last batch that shows no place."""
    twin = batches.batch([b"twin"], base_timestamp=NOW_MS)
    for _ in range(count):
        twin[:8] = history.next_offset.to_bytes(8)
        history.store(twin, shown=True)
    return history


def recut(brokers: TwoBrokers, records: list[Content], *sizes: int) -> None:
    """Let the destination hold records in other batches, as MirrorMaker 2 writes them."""
    lay_out(brokers, cut([Item(*each) for each in records], *sizes, codec=Codec.GZIP))


def test_a_copy_of_another_group_names_that_group_and_its_position(
    brokers: TwoBrokers, history: History
) -> None:
    twins(history.plain(2))
    brokers.with_settings(group="shoal.a.b").run()
    said = reason(brokers)
    assert "Group 'shoal.a.b' holds the position of this copy, up to source offset 5" in said
    assert (
        "Give --group shoal.a.b to go on there, or --adopt to let group 'mirror' take the copy over" in said
    )
    assert "--allow-nonempty" not in said


def test_a_group_is_named_that_is_not_called_shoal(brokers: TwoBrokers, history: History) -> None:
    twins(history)
    brokers.with_settings(group="mig").run()
    assert "Give --group mig to go on there" in reason(brokers)


def test_of_several_groups_the_one_that_came_furthest_is_named(brokers: TwoBrokers, history: History) -> None:
    history.plain(2)
    brokers.with_settings(group="shoal.first").run()
    twins(history)
    brokers.with_settings(group="shoal.second").run()
    assert "Give --group shoal.second to go on there" in reason(brokers)


def test_a_group_that_mirrored_a_former_destination_topic_is_not_named(
    brokers: TwoBrokers, history: History
) -> None:
    twins(history)
    brokers.with_settings(group="shoal.a.b").run()
    copied = [bytearray(each.view) for each in batches_of(brokers.destination.log("topic"))]
    brokers.destination.topics.delete(brokers.destination.topics.topic("topic"))
    brokers.destination.create_topic("topic")
    lay_out(brokers, copied)
    assert "shoal.a.b" not in reason(brokers)


def test_a_group_of_consumers_is_not_named(brokers: TwoBrokers, history: History) -> None:
    twins(history)
    brokers.with_settings(group="former").run()
    brokers.source.groups.delete("former")
    with Cluster(brokers.settings.source) as cluster:
        commit_offsets(cluster, "readers", {PARTITION: Committed(3, "")}, Membership())
    assert "its last batch is 3 times in the source" in reason(brokers)


def test_groups_are_not_searched_where_the_partition_goes_on(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    brokers.with_settings(group="shoal.a.b").run()
    asked = brokers.source.faults.add(ApiKey.LIST_GROUPS, error=ErrorCode.UNKNOWN_SERVER_ERROR, times=1)
    assert brokers.run().complete
    assert asked.hits == 0


def test_groups_that_may_not_be_listed_are_no_reason_to_fail(brokers: TwoBrokers, history: History) -> None:
    twins(history)
    brokers.with_settings(group="shoal.a.b").run()
    brokers.source.faults.add(ApiKey.LIST_GROUPS, drop="before", times=None)
    assert "its last batch is 3 times in the source" in reason(brokers)


def test_a_last_batch_that_is_there_several_times_says_that_records_would_double(
    brokers: TwoBrokers, history: History
) -> None:
    twins(history.plain(2))
    lay_out(brokers, [batches.batch([b"twin"], base_timestamp=NOW_MS)])
    said = reason(brokers)
    assert "Give --adopt to compare all of the copy with the source and go on behind it" in said
    assert (
        "With --allow-nonempty all records from source offset 0 on follow: those that the copy holds already "
        "will be there twice"
    ) in said


def test_a_copy_in_other_batches_is_another_programs_and_no_reset_of_the_source(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(4, 4, 4)
    recut(brokers, history.committed[:9], 2, 3)
    said = reason(brokers)
    assert "the source has its last record in another batch: it is another program's copy" in said
    assert "Stop that program, such as MirrorMaker 2. Give --adopt" in said
    assert "created again" not in said
    assert "?" not in said


def test_a_copy_in_other_batches_is_not_doubled_by_continuing_after_a_reset(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(4, 4, 4)
    recut(brokers, history.committed[:9], 2, 3)
    assert "another program's copy" in reason(
        brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    )


def test_new_topic_behind_a_former_one_begins_at_its_beginning_also_with_start_latest(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(5, 5)
    assert brokers.run().complete
    former = history.committed
    brokers.source.topics.delete(brokers.source.topics.topic("topic"))
    brokers.forget_pairs()  # Kafka deletes a topic's positions together with it
    brokers.source.create_topic("topic", 1)
    new = History(brokers.source.log("topic"), history.base_timestamp + 60_000).plain(2, 3)
    latest = brokers.ranges()[0]._replace(start_offset=new.next_offset)
    goes_on = brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    result = goes_on.run([latest])
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == [*former, *new.committed]


def test_records_of_others_may_come_from_a_topic_of_before(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    brokers.destination.log("topic").store(memoryview(batches.batch(3)))
    said = reason(brokers)
    assert "its last batch is not in the source" in said
    assert "?" not in said
    assert "--on-source-reset continue does the same" in said


def test_committed_by_groups_yields_each_group_that_committed_something(brokers: TwoBrokers) -> None:
    brokers.topic("topic", 2)
    with Cluster(brokers.settings.source) as cluster:
        for group, offset in (("one", 1), ("two", 2)):
            commit_offsets(cluster, group, {PARTITION: Committed(offset, "")}, Membership())
        commit_offsets(cluster, "other", {TopicPartition("topic", 1): Committed(3, "")}, Membership())
        found = dict(committed_by_groups(cluster, [PARTITION]))
        assert {group: each[PARTITION].offset for group, each in found.items()} == {"one": 1, "two": 2}
        assert dict(committed_by_groups(cluster, [])) == {}


def test_committed_by_groups_leaves_out_a_group_that_may_not_be_read(brokers: TwoBrokers) -> None:
    brokers.topic()
    with Cluster(brokers.settings.source) as cluster:
        for group in ("one", "two"):
            commit_offsets(cluster, group, {PARTITION: Committed(1, "")}, Membership())
        brokers.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
        assert len(dict(committed_by_groups(cluster, [PARTITION]))) == 1
