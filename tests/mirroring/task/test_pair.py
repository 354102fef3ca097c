"""A task whose brokers fail at any request continues, or stops partitions with a reason."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition, FetchResponse
from shoal.records import Codec, split
from shoal_broker import Broker
from shoal_broker.apis import APIS
from tests.world.clusters import TwoBrokers, die_after
from tests.world.control import Watched, partitions_of
from tests.world.faults import answers, leads_elsewhere, let_pass
from tests.world.history import History
from tests.world.waiting import wait_until

#: So small that a response has few batches, and one topic takes several.
SMALL_BUFFER = 65_536 + 400


# Delays of one partition that must not delay others


@pytest.mark.parametrize("side", ["source", "destination"])
def test_unreachable_leader_delays_only_its_own_partitions(brokers: TwoBrokers, side: str) -> None:
    histories = brokers.topic("topic", 3)
    for history in histories:
        history.plain(1, 2)
    leads_elsewhere(getattr(brokers, side), "topic", 0)
    control = Watched()
    running = brokers.start(control=control)
    wait_until(lambda: brokers.copied("topic", 1) == histories[1].committed)
    wait_until(lambda: brokers.copied("topic", 2) == histories[2].committed)
    assert brokers.copied("topic", 0) == []
    control.request_stop()
    assert not running.result().complete
    getattr(brokers, side).apis = APIS
    assert brokers.run().complete
    brokers.assert_exact(*histories)


# Leaders that disappear


def without_records(response: FetchResponse, **changes: Any) -> FetchResponse:
    return replace(
        response,
        partitions=[replace(each, record_set=memoryview(b""), **changes) for each in response.partitions],
    )


def local_log_begins_at(broker: Broker, offset: int) -> None:
    """Let a broker report that remote storage has all records before an offset."""
    earliest_local = -4

    def begin(response: Any) -> Any:
        response.topics[0].partitions[0].offset = offset
        return response

    def asks(request: Any) -> bool:
        return bool(request.topics[0].partitions[0].timestamp == earliest_local)

    answers(broker, ApiKey.LIST_OFFSETS, begin, math.inf, to=asks)


@pytest.mark.parametrize("looking", [False, True])
def test_slow_records_in_remote_storage_are_no_gap(
    brokers: TwoBrokers, history: History, looking: bool
) -> None:
    history.plain(3, 2)
    if looking:
        die_after(brokers, 1)
    local_log_begins_at(brokers.source, 5)
    answers(brokers.source, ApiKey.FETCH, without_records, times=9)
    assert brokers.start().result().complete
    brokers.assert_exact(history)


def test_silence_of_a_source_ends_though_its_answers_are_far_apart(
    brokers: TwoBrokers, history: History
) -> None:
    """As if hundreds of partitions were silent: each answer is about one of them."""
    brokers = brokers.with_timing(gap_patience_timeouts=1, most_between_answers_s=0.05)
    history.plain(3)

    def late(response: FetchResponse) -> FetchResponse:
        time.sleep(0.1)
        return without_records(response)

    answers(brokers.source, ApiKey.FETCH, late, 1_000_000)
    (stopped,) = brokers.impatient().start().result().stopped
    assert re.search(r"offset.*0", str(stopped))


def test_silence_of_a_source_ends_though_its_pair_ends_again_and_again(
    brokers: TwoBrokers, history: History
) -> None:
    brokers = brokers.with_timing(gap_patience_timeouts=1, longest_retry_ms=100)
    history.plain(3)
    seen = itertools.count(1)

    def silent(response: FetchResponse) -> FetchResponse:
        if next(seen) % 3:
            return without_records(response)
        return replace(response, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    answers(brokers.source, ApiKey.FETCH, silent, 1_000_000)
    (stopped,) = brokers.impatient().start().result().stopped
    assert re.search(r"\boffset\b.*\b0\b", str(stopped))


# Batches that cannot be copied, and damaged ones


def flipping(offset: int, position: int, bit: int) -> Callable[[FetchResponse], FetchResponse]:
    """Flip a bit of the batch at an offset of partition 0, as a bad memory does."""

    def change(response: FetchResponse) -> FetchResponse:
        return replace(response, partitions=[damaged(each) for each in response.partitions])

    def damaged(fetched: FetchedPartition) -> FetchedPartition:
        record_set = bytearray(fetched.record_set)
        start = 0
        for batch in split(fetched.record_set):
            if (fetched.partition, batch.header.base_offset) == (0, offset):
                record_set[start + position] ^= bit
            start += batch.header.size
        return replace(fetched, record_set=memoryview(record_set))

    return change


#: Where in a batch, which bit: its offset (behind the log's end), its length (longer, shorter), magic, CRC,
#: control bit, codec, range, count, payload.
DAMAGES = {
    "base-offset-huge": (2, 0x01),
    "length-huge": (9, 0x10),
    "length-odd": (11, 0x01),
    "magic-0": (16, 0x02),
    "magic-1": (16, 0x03),
    "magic-18": (16, 0x10),
    "crc": (17, 0x80),
    "control": (22, 0x20),
    "codec-none": (22, 0x04),
    "last-offset-delta": (26, 0x08),
    "records-count": (60, 0x01),
    "payload": (70, 0x40),
}
each_damage = pytest.mark.parametrize(("position", "bit"), DAMAGES.values(), ids=DAMAGES)


@each_damage
@pytest.mark.parametrize("offset", [0, 1])
def test_batch_damaged_in_transit_is_fetched_again(
    brokers: TwoBrokers, history: History, position: int, bit: int, offset: int
) -> None:
    history.plain(1, 3, codec=Codec.ZSTD).plain(1)
    answers(brokers.source, ApiKey.FETCH, flipping(offset, position, bit))
    assert brokers.start().result().complete
    brokers.assert_exact(history)


@each_damage
def test_batch_that_stays_damaged_stops_only_its_partition(
    brokers: TwoBrokers, position: int, bit: int
) -> None:
    damaged, other = brokers.topic("topic", 2)
    damaged.plain(1, 2, 3, codec=Codec.ZSTD).plain(1)
    other.plain(1, 2, 3)
    answers(brokers.source, ApiKey.FETCH, flipping(3, position, bit), times=100)
    (stopped,) = brokers.start().result().stopped
    assert (stopped.partition, stopped.offset) == (0, 3)
    assert re.search(r"second.*ended", stopped.reason)
    assert brokers.copied("topic", 0) == damaged.committed[:3]
    brokers.assert_exact(other, partition=1)
    brokers.source.apis = APIS
    assert brokers.run().complete
    brokers.assert_exact(damaged)


def test_batch_with_a_base_offset_too_large_loses_no_records(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 3, 2, 2, 3)
    low_byte_of_base_offset = 7
    answers(brokers.source, ApiKey.FETCH, flipping(1, low_byte_of_base_offset, 0x04))
    assert brokers.start().result().complete
    brokers.assert_exact(history)


def test_batches_whose_offsets_contradict_each_other_are_not_sent(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 3, 2, 2, 3)
    answers(brokers.source, ApiKey.FETCH, flipping(1, 7, 0x04), times=100)
    (stopped,) = brokers.start().result().stopped
    assert brokers.copied("topic", 0) == history.committed[: stopped.offset]


# Permanent refusals by the destination

PERMANENT: dict[ErrorCode, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the destination topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the destination topic",
    ErrorCode.INVALID_TIMESTAMP: "widen message.timestamp.before.max.ms",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "--operation Write --topic topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "allow IDEMPOTENT_WRITE",
    ErrorCode.INVALID_PRODUCER_EPOCH: "look for another mirror",
    ErrorCode.INVALID_REQUIRED_ACKS: "read the broker's log",
    ErrorCode.INVALID_RECORD: "a second try ended the same",
    ErrorCode.CORRUPT_MESSAGE: "a second try ended the same",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a second try ended the same",
    ErrorCode.UNKNOWN_SERVER_ERROR: "tries ended the same",
}


@pytest.mark.parametrize("code", PERMANENT)
def test_batch_refused_by_the_destination_stops_only_its_partition(
    brokers: TwoBrokers, code: ErrorCode
) -> None:
    brokers = brokers.with_timing(unexplained_patience_s=0.1)
    refused, other = brokers.topic("topic", 2)
    refused.plain(1, 2, 3, 1)
    other.plain(*[1] * 10)
    let_pass(brokers.destination, ApiKey.PRODUCE, 2)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=code, times=None, partition=0)
    (stopped,) = brokers.start().result().stopped
    assert (stopped.partition, stopped.offset) == (0, 3)
    for part in (
        f"the destination cluster at {brokers.destination.bootstrap} refuses the batch at source offset 3",
        f"error {int(code)} {code.name}",
        PERMANENT[code],
    ):
        assert part in stopped.reason
    assert brokers.position("topic", 0).source_offset == 3
    assert brokers.copied("topic", 0) == refused.committed[:3]
    brokers.assert_exact(other, partition=1)
    brokers.destination.faults.clear()
    assert brokers.run().complete
    brokers.assert_exact(refused)


def test_batch_with_more_runs_than_a_commit_has_room_for_is_copied_once(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(2).holed(900, range(1, 899, 2)).plain(2)
    assert brokers.run().complete
    brokers.assert_exact(history)


# Errors without an explanation


def test_unknown_error_code_of_fetch_keeps_its_number(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)

    def refuse(response: FetchResponse) -> FetchResponse:
        refused = (replace(each, error_code=171) for each in response.partitions)
        return replace(response, partitions=tuple(refused))

    answers(brokers.source, ApiKey.FETCH, refuse, times=2)
    control = Watched()
    assert brokers.start(control=control).result().complete
    assert any("error 171" in each for each in control.waited_for)
    brokers.assert_exact(history)


def test_failing_commits_are_named_while_records_are_copied(brokers: TwoBrokers, history: History) -> None:
    brokers = brokers.with_timing(report_interval_s=0.0)
    history.plain(*[1] * 40)
    let_pass(brokers.source, ApiKey.OFFSET_COMMIT, 1)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.UNKNOWN_SERVER_ERROR, times=4)
    brokers.destination.faults.add(ApiKey.PRODUCE, delay_s=0.01, times=None)
    control = Watched()
    often = brokers.with_timing(commit_interval_s=0.0).with_settings(fetch_buffer_bytes=SMALL_BUFFER)
    assert often.start(control=control).result().complete
    reported = partitions_of(control)
    sentences = {each["commit_waits_for"] for each in reported}
    assert any("error -1 UNKNOWN_SERVER_ERROR" in each for each in sentences if each)
    assert reported[-1]["commit_waits_for"] is None
    brokers.assert_exact(history)
