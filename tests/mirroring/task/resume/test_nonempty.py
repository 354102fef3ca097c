"""A partition without a position continues behind a copy, or stops with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, committed_by_groups
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import PartitionStopped
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.task.resume import preceding
from shoal.mirroring.task.resume.nonempty import Held
from shoal.mirroring.task.resume.stretch import SourceStretch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, fingerprint
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState
from tests import batches
from tests.two_brokers import (
    ABORT,
    COMMIT,
    NOW_MS,
    Content,
    History,
    TwoBrokers,
    Watched,
    batches_of,
    compacted,
    lose_tail,
)
from tests.verifying import Item, cut, lay_out

PARTITION = TopicPartition("topic", 0)


def stop_of(brokers: TwoBrokers) -> PartitionStopped:
    """Run a task that stops its one partition and writes nothing; return the stop."""
    end = brokers.destination.log("topic").log_end_offset
    (stopped,) = brokers.start().result().stopped
    assert brokers.destination.log("topic").log_end_offset == end
    return stopped


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


def test_copy_of_another_group_names_that_group_and_its_position(
    brokers: TwoBrokers, history: History
) -> None:
    twins(history.plain(2))
    brokers.with_settings(group="shoal.a.b").run()
    stopped = stop_of(brokers)
    assert stopped.cause is Held.OF_ANOTHER_GROUP
    assert re.search(r"'shoal\.a\.b'.*5.*'shoal\.a\.b'.*--adopt.*'mirror'", stopped.reason)
    assert "allow-nonempty" not in stopped.reason


def test_group_of_any_name_is_named(brokers: TwoBrokers, history: History) -> None:
    twins(history)
    brokers.with_settings(group="mig").run()
    stopped = stop_of(brokers)
    assert (stopped.cause, "'mig'" in stopped.reason) == (Held.OF_ANOTHER_GROUP, True)


def test_furthest_of_several_groups_is_named(brokers: TwoBrokers, history: History) -> None:
    history.plain(2)
    brokers.with_settings(group="shoal.first").run()
    twins(history)
    brokers.with_settings(group="shoal.second").run()
    assert "'shoal.second'" in stop_of(brokers).reason


def test_group_that_mirrored_a_former_destination_topic_is_not_named(
    brokers: TwoBrokers, history: History
) -> None:
    twins(history)
    brokers.with_settings(group="shoal.a.b").run()
    copied = [bytearray(each.view) for each in batches_of(brokers.destination.log("topic"))]
    brokers.destination.topics.delete(brokers.destination.topics.topic("topic"))
    brokers.destination.create_topic("topic")
    lay_out(brokers, copied)
    assert stop_of(brokers).cause is Held.SEVERAL_TIMES


def test_group_of_consumers_is_not_named(brokers: TwoBrokers, history: History) -> None:
    twins(history)
    brokers.with_settings(group="former").run()
    brokers.source.groups.delete("former")
    with Cluster(brokers.settings.source) as cluster:
        commit_offsets(cluster, "readers", {PARTITION: Committed(3, "")}, MemberId())
    assert stop_of(brokers).cause is Held.SEVERAL_TIMES


def test_groups_are_not_searched_if_the_partition_continues(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    brokers.with_settings(group="shoal.a.b").run()
    asked = brokers.source.faults.add(ApiKey.LIST_GROUPS, error=ErrorCode.UNKNOWN_SERVER_ERROR, times=1)
    assert brokers.run().complete
    assert asked.hits == 0


def test_unauthorized_list_of_groups_is_no_failure(brokers: TwoBrokers, history: History) -> None:
    twins(history)
    brokers.with_settings(group="shoal.a.b").run()
    brokers.source.faults.add(ApiKey.LIST_GROUPS, drop="before", times=None)
    assert stop_of(brokers).cause is Held.SEVERAL_TIMES


def test_last_batch_that_is_several_times_in_the_source_warns_of_duplicates(
    brokers: TwoBrokers, history: History
) -> None:
    twins(history.plain(2))
    lay_out(brokers, [batches.batch([b"twin"], base_timestamp=NOW_MS)])
    stopped = stop_of(brokers)
    assert stopped.cause is Held.SEVERAL_TIMES
    assert all(each in stopped.reason for each in ("--adopt", "--allow-nonempty", "source offset 0 "))


def test_copy_in_other_batches_is_reported_as_another_programs(brokers: TwoBrokers, history: History) -> None:
    history.plain(4, 4, 4)
    recut(brokers, history.committed[:9], 2, 3)
    stopped = stop_of(brokers)
    assert stopped.cause is Held.IN_OTHER_BATCHES
    assert "--adopt" in stopped.reason


def test_copy_in_other_batches_is_not_doubled_by_continuing_after_a_reset(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(4, 4, 4)
    recut(brokers, history.committed[:9], 2, 3)
    going_on = brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    assert stop_of(going_on).cause is Held.IN_OTHER_BATCHES


def test_new_topic_behind_a_former_one_with_start_latest_begins_at_its_beginning(
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


def test_last_batch_of_another_program_may_be_of_a_former_topic(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.destination.log("topic").store(memoryview(batches.batch(3)))
    stopped = stop_of(brokers)
    assert stopped.cause is Held.NOT_IN_SOURCE
    assert "--on-source-reset" in stopped.reason


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
        brokers.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
        assert len(dict(committed_by_groups(cluster, [PARTITION]))) == 1


# The last batch is in the source, once


def fill_again(brokers: TwoBrokers) -> History:
    """Delete the source topic and create it again, empty; Kafka deletes its positions with it."""
    brokers.source.topics.delete(brokers.source.topics.topic("topic"))
    brokers.forget_pairs()
    brokers.source.create_topic("topic", 1)
    return History(brokers.source.log("topic"))


def store_copy(history: History, batch: bytes | memoryview) -> None:
    """Store a batch that another log has, at this one's end."""
    again = bytearray(batch)
    again[:8] = history.next_offset.to_bytes(8)
    history.store(again, shown=True)


@pytest.mark.parametrize("policy", [frozenset(), frozenset({IncidentKind.SOURCE_RESET})])
@pytest.mark.parametrize("others", [(3,), (1, 4), (12, 30)])
def test_other_records_before_the_last_batch_are_not_passed_over(
    brokers: TwoBrokers, history: History, others: tuple[int, ...], policy: frozenset[IncidentKind]
) -> None:
    history.plain(4, 4, 20)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(*others), last)
    stopped = stop_of(brokers.with_settings(continue_on=policy))
    assert stopped.cause is Held.BEHIND_OTHER_RECORDS
    assert "(--rename)" in stopped.reason


def test_other_records_are_not_passed_over_with_start_latest(brokers: TwoBrokers, history: History) -> None:
    history.plain(4, 4, 20)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(3), last)
    latest = brokers.ranges()[0]._replace(start_offset=new.next_offset)
    (stopped,) = brokers.run([latest]).stopped
    assert stopped.cause is Held.BEHIND_OTHER_RECORDS


def test_only_batch_of_a_copy_does_not_hide_records_before_it(brokers: TwoBrokers, history: History) -> None:
    history.plain(40)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(3), last)
    assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


def test_gap_of_compaction_does_not_hide_records_before_it(brokers: TwoBrokers, history: History) -> None:
    """The former topic had a record at the offset of the new topic's gap, so the two differ."""
    history.plain(1, 20)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(1).gap(1), last)
    assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


def test_copy_longer_than_the_source_is_compared_as_a_whole(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many same batches before the last one are enough only if the rest may be the same, too."""
    monkeypatch.setattr(preceding, "MOST_RECORDS", 30)
    history.plain(*[5] * 12)
    assert brokers.run().complete
    last = [bytes(each.view) for each in batches_of(brokers.source.log("topic"))[-9:]]
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    new.plain(3)
    for each in last:
        store_copy(new, each)
    assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


def clean(broker: Broker, keep: Callable[[int], bool]) -> None:
    """Let a broker's cleaner go over the topic."""
    log = broker.log("topic")
    before, end = batches_of(log), log.log_end_offset
    after = lose_tail(broker, "topic", 0)
    for batch in before:
        is_plain = not batch.header.is_transactional
        after.store(memoryview(compacted(batch, keep)) if is_plain else batch.view)
    after.end_at(end)


def nothing_happens(brokers: TwoBrokers) -> None:
    pass


def the_source_loses_its_beginning(brokers: TwoBrokers) -> None:
    brokers.source.log("topic").delete_records(7)


def the_copy_loses_its_beginning(brokers: TwoBrokers) -> None:
    brokers.destination.log("topic").delete_records(7)


def both_lose_their_beginning(brokers: TwoBrokers) -> None:
    brokers.source.log("topic").delete_records(7)
    brokers.destination.log("topic").delete_records(11)


def the_source_is_compacted(brokers: TwoBrokers) -> None:
    clean(brokers.source, lambda offset: offset % 3 != 1 or offset >= 47)


def the_source_is_compacted_and_loses_its_beginning(brokers: TwoBrokers) -> None:
    the_source_is_compacted(brokers)
    the_source_loses_its_beginning(brokers)


CHANGES = [
    nothing_happens,
    the_source_loses_its_beginning,
    the_copy_loses_its_beginning,
    both_lose_their_beginning,
    the_source_is_compacted,
    the_source_is_compacted_and_loses_its_beginning,
]


@pytest.mark.parametrize("most_records", [35, 10_000])
@pytest.mark.parametrize("change", CHANGES)
def test_copy_whose_position_was_lost_continues_behind_its_last_batch(
    brokers: TwoBrokers,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[TwoBrokers], None],
    most_records: int,
) -> None:
    monkeypatch.setattr(preceding, "MOST_RECORDS", most_records)
    history.plain(4, 4, 4).transaction(3, ends=ABORT).plain(4, 4, 4, 4).transaction(2, ends=COMMIT)
    history.plain(4, 4, 4, 4)
    assert brokers.run().complete
    change(brokers)
    History(brokers.source.log("topic")).plain(2)
    brokers.forget_pairs()
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())
    source, copy = (batches_of(each.log("topic"))[-1] for each in (brokers.source, brokers.destination))
    assert (copy.header.base_offset, copy.header.next_offset) == (46, 48)
    assert fingerprint(copy) == fingerprint(source)


@pytest.mark.parametrize("most_records", [35, 10_000])
def test_compacted_copy_whose_position_was_lost_continues(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch, most_records: int
) -> None:
    """Each side has been cleaned at another time, and has the newest record of each key."""
    monkeypatch.setattr(preceding, "MOST_RECORDS", most_records)
    for _ in range(3):
        for _ in range(4):
            history.base_timestamp += 10
            history.plain(4)
        history.base_timestamp += 10
        history.plain(20)
    assert brokers.run().complete
    clean(brokers.source, lambda offset: offset % 3 != 1 or offset >= 88)
    clean(brokers.destination, lambda offset: offset % 5 != 1 or offset >= 88)
    brokers.forget_pairs()
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.position().source_offset == 108


def test_compacted_copy_that_lacks_a_key_of_the_source_stops(brokers: TwoBrokers, history: History) -> None:
    history.plain(30, 3)
    assert brokers.run().complete
    clean(brokers.destination, lambda offset: offset >= 30)
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(5), last)
    assert stop_of(brokers).cause is Held.BEHIND_OTHER_RECORDS


@pytest.mark.parametrize("left", [15, 16])
def test_copy_that_deleted_its_first_records_continues_if_enough_are_left(
    brokers: TwoBrokers, history: History, left: int
) -> None:
    for _ in range(7):
        history.plain(1, 4)
    assert brokers.run().complete
    brokers.destination.log("topic").delete_records(35 - left)
    brokers.forget_pairs()
    if left == 16:
        result = brokers.start().result()
        assert (result.complete, result.stopped) == (True, ())
    else:
        assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


def test_copy_of_a_recreated_topic_whose_position_was_lost_continues(
    brokers: TwoBrokers, history: History
) -> None:
    """The former topic's records lie before those of the source."""
    history.plain(5, 5)
    assert brokers.run().complete
    new = fill_again(brokers)
    new.base_timestamp += 60_000
    new.plain(2, 3)
    goes_on = brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    assert goes_on.run().complete
    brokers.forget_pairs()
    new.plain(4)
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == [*history.committed, *new.committed]


@pytest.mark.parametrize("count", [3, 30])
def test_copy_that_began_later_continues_with_start_latest_if_it_is_long_enough(
    brokers: TwoBrokers, history: History, count: int
) -> None:
    history.plain(6)
    latest = brokers.ranges()[0]._replace(start_offset=6)
    history.plain(*[1] * count)
    assert brokers.run([latest._replace(end_offset=history.next_offset)]).complete
    brokers.forget_pairs()
    latest = brokers.ranges()[0]._replace(start_offset=history.next_offset)
    result = brokers.run([latest])
    assert result.complete
    assert len(result.stopped) == (0 if count == 30 else 1)


def test_copy_that_began_later_than_this_mirror_stops(brokers: TwoBrokers, history: History) -> None:
    history.plain(6)
    history.plain(*[1] * 30)
    assert brokers.run([brokers.ranges()[0]._replace(start_offset=6)]).complete
    brokers.forget_pairs()
    assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


def test_copy_that_began_at_this_mirrors_start_continues(brokers: TwoBrokers, history: History) -> None:
    history.plain(6, 3)
    begins = brokers.ranges()[0]._replace(start_offset=6)
    assert brokers.run([begins]).complete
    brokers.forget_pairs()
    result = brokers.run([begins])
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed[6:]


def test_messages_of_old_formats_that_the_source_cut_are_not_mirrored_again(
    brokers: TwoBrokers, history: History
) -> None:
    """Messages become batches; a source that deleted some of the last one's has its others all the same."""
    for number in range(30):
        history.log.store(
            memoryview(batches.message(1, b"%d" % number, offset=number, timestamp=NOW_MS + number))
        )
    assert brokers.run().complete
    brokers.forget_pairs()
    brokers.source.log("topic").delete_records(7)
    brokers.source.log("topic").store(memoryview(batches.message(1, b"30", offset=30, timestamp=NOW_MS + 30)))
    going_on = brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    assert going_on.start().result().complete
    assert [each.value for each in brokers.copied()] == [b"%d" % number for number in range(31)]


def store_old(brokers: TwoBrokers, numbers: range, codec: Codec = Codec.NONE) -> None:
    """Let the source hold messages of magic 0, each with its number as its value; compressed ones in one."""
    inner = [bytes(batches.message(0, b"%d" % number, offset=number)) for number in numbers]
    if codec is not Codec.NONE:
        inner = [bytes(batches.wrapper(0, codec, inner, offset=numbers[-1]))]
    for each in inner:
        brokers.source.log("topic").store(memoryview(bytearray(each)))


GOES_ON_AFTER_RESET = frozenset({IncidentKind.SOURCE_RESET})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("deleted", [7, 14])
def test_messages_without_times_that_the_source_cut_are_not_mirrored_again(
    brokers: TwoBrokers, history: History, codec: Codec, deleted: int
) -> None:
    """The copy's last batch holds messages before the source's log: single ones, or one around many."""
    store_old(brokers, range(30), codec)
    assert brokers.run().complete
    brokers.forget_pairs()
    brokers.source.log("topic").delete_records(deleted)
    store_old(brokers, range(30, 33), codec)
    result = brokers.with_settings(continue_on=GOES_ON_AFTER_RESET).start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert [each.value for each in brokers.copied()] == [b"%d" % number for number in range(33)]


@pytest.mark.parametrize("allow", [False, True])
def test_too_few_messages_without_times_stop_the_partition(
    brokers: TwoBrokers, history: History, allow: bool
) -> None:
    """A new topic may begin with the former one's last messages, which look the same."""
    store_old(brokers, range(30))
    assert brokers.run().complete
    brokers.forget_pairs()
    brokers.source.log("topic").delete_records(20)
    store_old(brokers, range(30, 33))
    assert (
        stop_of(brokers.with_settings(continue_on=GOES_ON_AFTER_RESET, allow_nonempty=allow)).cause
        is Held.BEHIND_UNKNOWN_RECORDS
    )


def test_messages_without_times_that_the_source_compacted_stop_the_partition(
    brokers: TwoBrokers, history: History
) -> None:
    numbers = [*range(5), *range(6, 30)]
    store_old(brokers, range(30), Codec.GZIP)
    assert brokers.run().complete
    brokers.forget_pairs()
    inner = [bytes(batches.message(0, b"%d" % number, offset=number)) for number in numbers]
    cleaned = batches.wrapper(0, Codec.GZIP, inner, offset=29)
    lose_tail(brokers.source, "topic", 0).store(memoryview(cleaned))
    assert stop_of(brokers.with_settings(continue_on=GOES_ON_AFTER_RESET)).cause is Held.IN_OTHER_BATCHES


def test_new_topic_of_other_messages_without_times_is_mirrored_behind_the_former_one(
    brokers: TwoBrokers, history: History
) -> None:
    store_old(brokers, range(30))
    assert brokers.run().complete
    fill_again(brokers)
    inner = [bytes(batches.message(0, b"new %d" % number, offset=number)) for number in range(20)]
    for each in inner:
        brokers.source.log("topic").store(memoryview(bytearray(each)))
    result = brokers.with_settings(continue_on=GOES_ON_AFTER_RESET).start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert [each.value for each in brokers.copied()][30:] == [b"new %d" % number for number in range(20)]


def goes_on(brokers: TwoBrokers, ranges: list[CopyRange] | None = None) -> None:
    """Run a task without a position, and again with allow_nonempty: neither stops nor copies again."""
    end = brokers.destination.log("topic").log_end_offset
    for allow in (False, True):
        brokers.forget_pairs()
        result = brokers.with_settings(allow_nonempty=allow).run(ranges)
        assert (result.complete, result.stopped) == (True, ())
        assert brokers.destination.log("topic").log_end_offset == end


@pytest.mark.parametrize("allow", [False, True])
def test_copy_without_evidence_stops_with_and_without_allow_nonempty(
    brokers: TwoBrokers, history: History, allow: bool
) -> None:
    history.plain(30, 3)
    assert brokers.run().complete
    brokers.destination.log("topic").delete_records(30)
    brokers.forget_pairs()
    stopped = stop_of(brokers.with_settings(allow_nonempty=allow))
    assert stopped.cause is Held.BEHIND_UNKNOWN_RECORDS
    assert all(each in stopped.reason for each in ("--adopt", "--allow-nonempty"))


def test_allow_nonempty_behind_other_records_begins_at_the_start(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(4, 4, 20)
    assert brokers.run().complete
    former = brokers.copied()
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(3), last)
    assert brokers.with_settings(allow_nonempty=True).run().complete
    assert brokers.copied() == [*former, *new.committed]


@pytest.mark.parametrize("policy", [frozenset(), GOES_ON_AFTER_RESET])
@pytest.mark.parametrize("has_last_batch", [False, True])
def test_allow_nonempty_hides_no_incident_of_a_source_that_was_filled_again(
    brokers: TwoBrokers, history: History, policy: frozenset[IncidentKind], has_last_batch: bool
) -> None:
    history.plain(4, 4, 20)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    new.plain(3)
    if has_last_batch:
        store_copy(new, last)
    control = Watched()
    goes_on = brokers.with_settings(allow_nonempty=True, continue_on=policy)
    assert goes_on.start(control=control).result().complete
    incidents = [
        (kind, lost, continued)
        for report in control.reports
        for each in report["partitions"]
        for kind, _, lost, continued in each["incidents"]
    ]
    assert incidents == ([("source-reset", None, True)] if policy else [])


def test_copy_of_which_only_its_last_batch_is_left_continues(brokers: TwoBrokers, history: History) -> None:
    history.plain(500, 500)
    assert brokers.run().complete
    brokers.destination.log("topic").delete_records(500)
    goes_on(brokers)


def test_copy_that_began_later_with_one_batch_continues_with_start_latest(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(6, 500)
    latest = brokers.ranges()[0]
    assert brokers.run([latest._replace(start_offset=6)]).complete
    goes_on(brokers, [latest._replace(start_offset=506)])


def test_aborted_records_before_the_last_batch_do_not_count(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[1] * 40).transaction(*[1000] * 11, ends=ABORT).plain(3)
    assert brokers.run().complete
    goes_on(brokers)


def test_more_records_in_front_of_a_long_log_are_not_passed_over(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was filled again with a longer history; its last records fill all that is compared."""
    monkeypatch.setattr(preceding, "MOST_RECORDS", 100)
    history.plain(*[10] * 30)
    assert brokers.run().complete
    former = [bytes(each.view) for each in batches_of(brokers.source.log("topic"))]
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    new.plain(50)
    for each in former:
        store_copy(new, each)
    assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


@pytest.mark.parametrize("ends", [COMMIT, ABORT])
def test_long_copy_whose_position_was_lost_continues_behind_markers(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    monkeypatch.setattr(preceding, "MOST_RECORDS", 100)
    for _ in range(30):
        history.base_timestamp += 10
        history.plain(10).transaction(2, ends=ends)
    history.plain(3)
    assert brokers.run().complete
    goes_on(brokers)


def test_long_copy_of_a_recreated_topic_whose_position_was_lost_continues(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of the new topic than is compared, and less than the copy holds with the former one's."""
    monkeypatch.setattr(preceding, "MOST_RECORDS", 100)
    history.plain(*[50] * 4)
    assert brokers.run().complete
    new = fill_again(brokers)
    new.base_timestamp += 60_000
    new.plain(*[10] * 15, 2)
    continuing = brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    assert continuing.run().complete
    goes_on(brokers)


def drop_empty(broker: Broker) -> None:
    """Let a broker's cleaner drop the batches that have no record left."""
    log = broker.log("topic")
    before, end = batches_of(log), log.log_end_offset
    after = lose_tail(broker, "topic", 0)
    for batch in before:
        if batch.header.records_count:
            after.store(batch.view)
    after.end_at(end)


def test_few_records_of_a_strongly_compacted_source_are_compared_as_a_whole(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(*[1000] * 13, 1)
    assert brokers.run().complete
    clean(brokers.source, lambda offset: offset % 1000 == 0)
    drop_empty(brokers.source)
    goes_on(brokers)


def test_long_copy_of_a_strongly_compacted_source_continues(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's first records lay further apart than the copy is searched for them."""
    monkeypatch.setattr(preceding, "MOST_RECORDS", 20)
    monkeypatch.setattr(preceding, "FIRST_AMONG", 1000)
    history.plain(*[1000] * 13, 1)
    assert brokers.run().complete
    clean(brokers.source, lambda offset: offset % 300 == 299 or offset == 13_000)
    drop_empty(brokers.source)
    goes_on(brokers)


def test_long_copy_that_begins_with_large_batches_continues(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preceding, "MOST_RECORDS", 100)
    monkeypatch.setattr(preceding, "FIRST_AMONG", 1000)
    history.plain(2000, 2000, *[10] * 20, 3)
    assert brokers.run().complete
    goes_on(brokers)


@pytest.mark.parametrize("value", [None, b"v"])
def test_record_missing_in_a_compacted_copy_was_mirrored_if_it_is_a_tombstone(
    brokers: TwoBrokers, history: History, value: bytes | None
) -> None:
    """A cleaner removes tombstones after delete.retention.ms: at another time on each side."""
    keyed = [
        batches.Record(key=b"k%d" % number, value=value if number == 3 else b"v", offset_delta=number)
        for number in range(10)
    ]
    for records in (keyed, [batches.Record(key=b"z", value=b"w")]):
        last = len(records) - 1
        history.store(
            batches.raw_batch(
                batches.payload(records),
                base_offset=history.next_offset,
                last_offset_delta=last,
                records_count=len(records),
                base_timestamp=NOW_MS,
                max_timestamp=NOW_MS,
            ),
            shown=True,
        )
    assert brokers.run().complete
    clean(brokers.destination, lambda offset: offset != 3)
    if value is None:
        goes_on(brokers)
    else:
        brokers.forget_pairs()
        assert stop_of(brokers).cause is Held.BEHIND_OTHER_RECORDS


@pytest.mark.parametrize("is_source", [False, True])
def test_other_records_in_a_batch_that_cannot_be_decoded_are_not_passed_over(
    brokers: TwoBrokers, history: History, is_source: bool
) -> None:
    def store(history: History, is_large: bool) -> None:
        history.store(history.batch(200, codec=Codec.GZIP if is_large else Codec.NONE), shown=True)

    store(history, is_large=not is_source)
    history.plain(3)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store(new, is_large=is_source)
    store_copy(new, last)
    assert stop_of(brokers.with_settings(max_decompressed_bytes=2000)).cause is Held.BEHIND_UNKNOWN_RECORDS


def test_batch_that_cannot_be_decoded_is_known_by_its_fingerprint(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3)
    history.store(history.batch(200, codec=Codec.GZIP), shown=True)
    history.plain(3)
    assert brokers.run().complete
    goes_on(brokers.with_settings(max_decompressed_bytes=2000))


def test_compacted_copy_that_deleted_its_first_records_continues(
    brokers: TwoBrokers, history: History
) -> None:
    """Some keys of the deleted records never came again."""
    history.plain(30)
    for _ in range(3):
        history.base_timestamp += 10
        history.plain(20)
    history.plain(3)
    assert brokers.run().complete
    clean(brokers.destination, lambda offset: offset not in (45, 65))
    brokers.destination.log("topic").delete_records(30)
    goes_on(brokers)


def test_batch_that_cannot_be_decoded_may_lie_before_the_copy_s_first_record(
    brokers: TwoBrokers, history: History
) -> None:
    history.store(history.batch(200, codec=Codec.GZIP), shown=True)
    history.plain(*[1] * 30)
    assert brokers.run().complete
    brokers.destination.log("topic").delete_records(200)
    goes_on(brokers.with_settings(max_decompressed_bytes=2000))


def test_damaged_batch_of_the_copy_hides_no_other_records(brokers: TwoBrokers, history: History) -> None:
    history.plain(5, 3)
    assert brokers.run().complete
    last = bytes(batches_of(brokers.source.log("topic"))[-1].view)
    damaged, whole = (bytearray(each.view) for each in batches_of(brokers.destination.log("topic")))
    damaged[-20:] = b"\xff" * 20
    copy = lose_tail(brokers.destination, "topic", 0)
    copy.store(memoryview(damaged))
    copy.store(memoryview(whole))
    new = fill_again(brokers)
    new.base_timestamp -= 60_000
    store_copy(new.plain(5), last)
    assert stop_of(brokers).cause is Held.BEHIND_UNKNOWN_RECORDS


def answer_at_most(broker: Broker, size: int) -> None:
    """Let no answer to a Fetch be larger than that."""
    api = broker.apis[ApiKey.FETCH]

    def handle(state: BrokerState, call: Call, request: Any) -> Any:
        request.max_bytes = min(request.max_bytes, size)
        return api.handle(state, call, request)

    broker.apis = {**broker.apis, ApiKey.FETCH: replace(api, handle=handle)}


@pytest.mark.parametrize(("count", "pieces"), [(30, 1), (2000, 3)])
def test_records_before_the_last_batch_are_read_once_of_each_side(
    brokers: TwoBrokers, history: History, count: int, pieces: int
) -> None:
    """The broker sends the longer log in three answers. The last batch is looked for in the source, too."""
    history.plain(*[5] * count)
    assert brokers.run().complete
    size = sum(each.header.size for each in batches_of(history.log))
    for each in (brokers.source, brokers.destination):
        answer_at_most(each, size // pieces + 1000)
    brokers.forget_pairs()
    fetches = [each.faults.add(ApiKey.FETCH, times=None) for each in (brokers.source, brokers.destination)]
    assert brokers.run().complete
    source, destination = (each.hits for each in fetches)
    # A busy machine repeats one request. To read a side once more would need as many as there are pieces.
    assert source in (2 * pieces, 2 * pieces + 1)
    assert destination in (1 + pieces, 2 + pieces)


def test_large_records_before_the_last_batch_are_compared_up_to_a_limit(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preceding, "MOST_BYTES", 100_000)
    read = 0
    read_stretch = SourceStretch.read

    def count(*args: Any, **options: Any) -> SourceStretch:
        nonlocal read
        stretch = read_stretch(*args, **options)
        read += stretch.bytes
        return stretch

    monkeypatch.setattr(SourceStretch, "read", count)
    for number in range(400):
        content = b"%08d" % number * 125
        history.store(
            batches.batch([content], base_offset=history.next_offset, base_timestamp=NOW_MS + number),
            shown=True,
        )
    assert brokers.run().complete
    goes_on(brokers)
    most_first = preceding.FIRST_RECORDS * 1100
    assert 100_000 < read // 2 < 100_000 + most_first
