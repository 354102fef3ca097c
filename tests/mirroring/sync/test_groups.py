"""Rounds between two embedded brokers, with a mirror that has copied records of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from shoal.client.cluster import Cluster
from shoal.client.groups import GroupListing, GroupType, ListedGroup, list_groups
from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError
from shoal.mirroring.model import offset_map
from shoal.mirroring.model.offset_map import Exactness, Translation
from shoal.mirroring.sync import groups as rounds
from shoal.mirroring.sync.decide import Seen, decide
from shoal.mirroring.sync.report import Action, Direction, GroupOffset, GroupsReport
from shoal.protocol.apis import ApiKey
from tests.mirroring.sync.conftest import Groups, row_of
from tests.world.history import ABORT, COMMIT


def mixed(groups: Groups, topic: str = "topic") -> None:
    """Fill a topic with transactions, holes and plain batches, and mirror it."""
    (history,) = groups.two.topic(topic)
    history.plain(3, 2).transaction(2, 3, ends=COMMIT).transaction(4, ends=ABORT).plain(5)
    history.holed(6, [1, 4]).empty().gap(7).plain(2).transaction(1, ends=COMMIT)
    groups.two.run(groups.two.ranges(topic))


def test_round_translates_each_offset_of_all_kinds_of_batches(groups: Groups) -> None:
    """A consumer that continues there reads the record that it would have read here."""
    mixed(groups)
    end = groups.two.source.log("topic").log_end_offset
    for offset in range(end + 1):
        groups.commit("source", f"at {offset}", offset)
    report = groups.prove(groups.round())
    offsets = [each for group in report.groups for each in group.offsets]
    assert len(offsets) == end + 1
    for each in offsets:
        assert each.proof is not None
        assert each.proof.is_same is not False, each
        assert each.action is Action.WRITTEN
        committed = groups.committed("destination", each.group)
        assert committed is not None
        assert committed.offset == each.translated
    assert {each.exactness for each in offsets} == {Exactness.EXACT}
    assert all(each.proof and each.proof.is_same for each in offsets)


def count_decisions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the group of each decision from now on."""
    decided: list[str] = []

    def counted(
        seen: Seen, translation: Translation | ShoalError | None, read_id: str | None, written: str
    ) -> GroupOffset:
        decided.append(seen.group)
        return decide(seen, translation, read_id, written)

    monkeypatch.setattr(rounds, "decide", counted)
    return decided


def test_round_again_decides_only_about_groups_with_news(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most groups of a large cluster are idle, while the mirror copies."""
    (history,) = groups.two.topic()
    history.plain(9)
    groups.two.run()
    for number in range(8):
        groups.commit("source", f"g{number}", number)
    sync = groups.sync()
    for _ in range(2):  # a round that commits, and one that sees its commits
        sync.round(groups.topics, apply=True)
    decided = count_decisions(monkeypatch)
    idle = sync.round(groups.topics, apply=True)
    history.plain(4)
    groups.two.run()
    behind = sync.round(groups.topics, apply=True)
    assert decided == []
    assert idle.counts == behind.counts == {"unchanged": 8, "exact": 8}
    groups.commit("source", "g3", 5)
    assert sync.round(groups.topics, apply=True).counts == {"committed": 1, "unchanged": 7, "exact": 8}
    assert set(decided) == {"g3"}


def test_round_decides_once_about_a_group_without_other_committers(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    decided = count_decisions(monkeypatch)
    assert row_of(groups.round()).action is Action.WRITTEN
    assert decided == ["g"]


def test_round_among_transactions_reads_all_partitions_together(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_map, "MOST_EDGES", 0)  # as after more gaps than a map has milestones
    partitions, offsets = 12, (3, 4, 10, 17)
    for history in groups.two.topic(partitions=partitions):
        for _ in range(5):
            history.transaction(2, ends=COMMIT).plain(1)
    groups.two.run()
    for partition in range(partitions):
        for offset in offsets:
            groups.commit("source", f"at {offset}", offset, partition=partition)
    sync = groups.sync()
    fetches = groups.two.source.faults.add(ApiKey.FETCH, times=None)
    report = sync.round(groups.topics, apply=True)
    assert fetches.hits == 1
    assert report.counts == {"committed": partitions * len(offsets), "exact": partitions * len(offsets)}
    report = groups.prove(report)
    assert all(each.proof and each.proof.is_same for group in report.groups for each in group.offsets)


def test_round_of_a_topic_that_is_not_mirrored_names_it(groups: Groups) -> None:
    mixed(groups)
    groups.two.topic("private")
    groups.two.topic("later")
    groups.commit("source", "g", 4, topic="private")
    groups.commit("source", "h", 4, topic="later")
    groups.topics["later"] = "later"
    report = groups.round()
    assert row_of(report, "g").action is Action.NOT_MIRRORED
    assert row_of(report, "h").action is Action.NO_POSITION
    assert "later-0" in row_of(report, "h").detail


def test_round_with_renamed_topics_translates_to_the_copy(groups: Groups) -> None:
    groups.two.source.create_topic("topic")
    groups.two.destination.create_topic("west.topic")
    history = groups.two.topic("filler")[0]
    history.log, history.next_offset = groups.two.source.log("topic"), 0
    history.plain(3).transaction(2, ends=COMMIT).plain(4)
    ranges = [each._replace(destination_topic="west.topic") for each in groups.two.ranges("topic")]
    groups.two.run(ranges)
    groups.topics = {"topic": "west.topic"}
    groups.commit("source", "g", 7)
    row = row_of(groups.round())
    assert (str(row.counterpart), row.translated, row.action) == ("west.topic-0", 6, Action.WRITTEN)
    groups.commit("destination", "h", 6, topic="west.topic")
    back = row_of(groups.round(direction=Direction.REVERSE), "h")
    assert (str(back.partition), str(back.counterpart)) == ("west.topic-0", "topic-0")
    assert back.translated in (6, 7)


def test_reverse_brings_groups_back_and_sends_none_back_twice(groups: Groups) -> None:
    mixed(groups)
    groups.commit("source", "followed", 4)
    groups.commit("destination", "worked there", 9)
    assert row_of(groups.round(), "followed").action is Action.WRITTEN
    report = groups.round(direction=Direction.REVERSE)
    assert row_of(report, "followed").action is Action.RETURNED
    back = row_of(report, "worked there")
    assert back.action is Action.WRITTEN
    (proved,) = (
        each
        for group in groups.prove(report).groups
        for each in group.offsets
        if each.group == "worked there"
    )
    assert proved.proof is not None
    assert proved.proof.is_same
    assert row_of(groups.round(), "worked there").action is Action.RETURNED


def test_round_leaves_the_group_of_another_mirror_out(groups: Groups) -> None:
    mixed(groups)
    committed = groups.committed("source", "mirror")
    assert committed is not None
    groups.commit("source", "other mirror", committed.offset, committed.metadata)
    (report,) = groups.round().groups
    assert (report.is_left_out, "of a mirror" in report.problem) == (True, True)
    assert report.offsets == ()


def test_round_of_consumers_in_the_former_group_of_a_mirror_waits_for_an_operator(groups: Groups) -> None:
    mixed(groups)
    groups.two.topic("unmirrored")
    committed = groups.committed("source", "mirror")
    assert committed is not None
    groups.commit("source", "g", committed.offset, committed.metadata)
    groups.commit("source", "g", 0, topic="unmirrored")
    (report,) = groups.round().groups
    assert all(each in report.problem for each in ("some", "of a mirror"))
    assert not report.is_left_out


def test_round_leaves_a_share_group_out(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    shared = ListedGroup("shared", GroupType.SHARE, "share", "Stable")

    def listed(cluster: Cluster, *, with_states: bool) -> GroupListing:
        found = list_groups(cluster, with_states=with_states)
        return replace(found, groups={**found.groups, "shared": shared})

    monkeypatch.setattr("shoal.mirroring.sync.selected.list_groups", listed)
    report = groups.round()
    assert row_of(report).action is Action.WRITTEN
    (left_out,) = report.left_out
    assert (left_out.name, "share.auto.offset.reset" in left_out.problem) == ("shared", True)
    assert report.untranslated == []


def test_round_without_the_mirrors_positions_raises(groups: Groups) -> None:
    mixed(groups)
    groups.two.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    with pytest.raises(ShoalError, match="group 'mirror'"):
        groups.round()


@contextmanager
def open_transaction(bootstrap: str, offset: int) -> Iterator[Producer]:
    """Commit an offset of group g to an open transaction of a producer that is no member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(10.0)
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([ConfluentPartition("topic", 0, offset)], metadata, 10.0)
    yield producer
    consumer.close()


@pytest.mark.parametrize("before", [1, None], ids=["an offset", "no offset"])
def test_round_leaves_an_offset_alone_that_an_open_transaction_of_the_destination_changes(
    groups: Groups, before: int | None
) -> None:
    """Kafka keeps the later commit, not the later offset, so the end would not bring the consumer's."""
    mixed(groups)
    groups.commit("source", "g", 4)
    if before is not None:
        groups.commit("destination", "g", before, "theirs")
    sync = groups.sync()
    with open_transaction(groups.two.destination.bootstrap, 9) as producer:
        row = row_of(sync.round(groups.topics, apply=True))
        assert (row.action, row.present) == (Action.REFUSED, None)
        assert all(each in row.detail for each in ("open transaction", "the other cluster"))
        producer.commit_transaction(10.0)
    row = row_of(sync.round(groups.topics, apply=True))
    assert (row.action, row.present) == (Action.FURTHER, 9)


def test_round_again_with_metadata_that_the_broker_refuses_changes_nothing(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4, "m" * 500)
    monkeypatch.setitem(groups.two.destination.config, "offset.metadata.max.bytes", "100")
    assert row_of(groups.round()).action is Action.WRITTEN
    assert row_of(groups.round()).action is Action.UNCHANGED
    groups.commit("source", "g", 5, "short")
    assert row_of(groups.round()).action is Action.WRITTEN
    committed = groups.committed("destination", "g")
    assert committed is not None
    assert committed.metadata.endswith(" exact short")


def rows(report: GroupsReport, topic: str) -> list[GroupOffset]:
    return [each for group in report.groups for each in group.offsets if each.partition.topic == topic]
