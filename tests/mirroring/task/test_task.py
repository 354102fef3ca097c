"""One task between two brokers copies all records once, and in order."""

from __future__ import annotations

import gc

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.task import worker
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers, die_after
from tests.world.contents import batches_of
from tests.world.control import Watched
from tests.world.faults import let_pass
from tests.world.history import NOW_MS, History


def test_batch_of_any_codec_arrives_with_its_bytes(brokers: TwoBrokers, history: History) -> None:
    for codec in Codec:
        history.plain(4, codec=codec)
    result = brokers.run()
    assert result.complete
    assert result.stopped == ()
    brokers.assert_exact(history)
    sent, arrived = batches_of(history.log), batches_of(brokers.destination.log("topic"))
    assert [bytes(each.payload) for each in arrived] == [bytes(each.payload) for each in sent]
    assert [each.header.codec_id for each in arrived] == list(Codec)


# Commits


def test_fenced_task_commits_nothing_and_fails(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    let_pass(brokers.source, ApiKey.OFFSET_COMMIT, 1)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(BrokerError, match=r"'mirror'.*FENCED_INSTANCE_ID"):
        brokers.run()
    assert brokers.position().source_offset == 0
    brokers.run()
    brokers.assert_exact(history)


def test_commit_metadata_too_large_stops_the_partition_before_the_first_record(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.source.config["offset.metadata.max.bytes"] = "10"
    (stopped,) = brokers.run().stopped
    assert "OFFSET_METADATA_TOO_LARGE" in stopped.reason
    assert brokers.copied() == []


def test_map_that_the_coordinator_takes_no_more_stops_the_partition_until_it_does(
    brokers: TwoBrokers, history: History
) -> None:
    for _ in range(150):
        history.plain(1).gap(1)
    die_after(brokers, 0)  # behind the commit of the map
    assert len(brokers.position().plan) > 100
    brokers.source.config["offset.metadata.max.bytes"] = "500"
    (stopped,) = brokers.run().stopped
    assert "OFFSET_METADATA_TOO_LARGE" in stopped.reason
    brokers.source.config["offset.metadata.max.bytes"] = "4096"
    assert brokers.run().complete
    brokers.assert_exact(history)


def test_failing_last_commit_is_retried_with_pauses(brokers: TwoBrokers, history: History) -> None:
    brokers = brokers.with_timing(last_commit_patience_s=2.0)
    history.plain(1, 2)
    let_pass(brokers.source, ApiKey.OFFSET_COMMIT, 2)  # the first position, and the first plan
    fault = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before", times=None)
    with pytest.raises(Disconnected):
        brokers.run()
    assert 1 < fault.hits < 8  # a pause is twice as long as the one before


def test_failing_commit_after_a_request_to_stop_is_left_to_the_next_task(
    brokers: TwoBrokers, history: History
) -> None:
    brokers = brokers.with_timing(requested_commit_patience_s=2.0)
    history.plain(1, 2)
    let_pass(brokers.source, ApiKey.OFFSET_COMMIT, 2)  # the first position, and the first plan
    fault = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before", times=None)
    control = Watched(2, lambda: control.request_stop())
    brokers.run(control=control)
    assert 1 < fault.hits < 8  # a pause is twice as long as the one before
    brokers.source.faults.clear()
    brokers.run()
    brokers.assert_exact(history)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("gaps", [100, 450], ids=["all in one plan", "in several plans"])
def test_plan_is_shorter_than_the_longest_metadata_of_the_coordinator(
    brokers: TwoBrokers, history: History, gaps: int
) -> None:
    for _ in range(gaps):
        history.plain(1).gap(1)
    brokers.source.config["offset.metadata.max.bytes"] = "500"
    assert brokers.run().complete
    brokers.assert_exact(history)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("most_characters", ["450", "700"])
def test_batch_with_gaps_is_sent_in_parts_for_which_short_metadata_have_room(
    brokers: TwoBrokers, history: History, most_characters: str
) -> None:
    history.holed(400, range(1, 400, 2)).plain(3)
    brokers.source.config["offset.metadata.max.bytes"] = most_characters
    assert brokers.start().result().complete
    brokers.assert_exact(history)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_with_more_gaps_than_a_commit_has_room_for_is_sent_in_parts(
    brokers: TwoBrokers, history: History, magic: int
) -> None:
    """The offset of such a message is that of the last one in it."""
    records = [Content(NOW_MS, None, b"%d" % number) for number in range(800)]
    history.messages(records, magic, Codec.GZIP, range(0, 1600, 2)).plain(3)
    assert brokers.start().result().complete
    brokers.assert_exact(history)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("rebatch", [None, "130", "130:lz4"])
def test_log_of_more_leader_epochs_than_a_commit_has_room_for_is_sent_in_parts(
    brokers: TwoBrokers, history: History, rebatch: str | None
) -> None:
    for epoch in range(1, 901):
        history.log.begin_leader_epoch(epoch)
        history.plain(1, 1, leader_epoch=epoch)
    if rebatch is not None:
        brokers = brokers.with_settings(rebatch=Rebatch.parse("--rebatch", rebatch))
    assert brokers.start().result().complete
    brokers.assert_exact(history)


# Memory


def test_ended_task_leaves_no_fetch_buffer_to_the_process(brokers: TwoBrokers, history: History) -> None:
    """A process runs one task after the other for days, and its collector seldom walks old objects."""
    history.plain(3)
    gc.disable()  # what is left to the collector is seen
    try:
        before = [each for each in gc.get_objects() if isinstance(each, worker.Worker)]
        brokers.run()
        left = [each for each in gc.get_objects() if isinstance(each, worker.Worker)]
    finally:
        gc.enable()
    assert len(left) <= len(before)
