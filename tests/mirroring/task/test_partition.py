"""Decisions on the batches of a partition; a batch that cannot be mirrored stops its own partition only."""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, PartitionStopped, ShoalError
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned
from shoal.mirroring.task import aligner, resume
from shoal.mirroring.task.partition import PartitionCopy
from shoal.mirroring.task.trouble import Trouble
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.timing import Clock
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.history import History


@pytest.mark.parametrize("codec", [5, 7])
@pytest.mark.parametrize("before", [0, 3])
def test_batch_with_an_unknown_codec_stops_only_its_partition(
    brokers: TwoBrokers, codec: int, before: int
) -> None:
    refusing, other = brokers.topic("topic", 2)
    refusing.plain(*[2] * before)
    refusing.store(refusing.batch(1, flags=codec))
    refusing.plain(2)
    other.plain(1, 2, 3)
    for _ in range(2):  # a second run has the same result
        result = brokers.start().result()
        (stopped,) = result.stopped
        assert (stopped.topic, stopped.partition, stopped.offset) == ("topic", 0, 2 * before)
        assert f"its codec is {codec}" in str(stopped)
        assert all(each in str(stopped) for each in ("topic-0", f"{2 * before}"))
        assert brokers.copied("topic", 0) == refusing.committed[: 2 * before]
        brokers.assert_exact(other, partition=1)
        assert brokers.position("topic", 0).source_offset == 2 * before


def test_attribute_bits_reserved_for_brokers_are_cleared(brokers: TwoBrokers, history: History) -> None:
    flags = batches.LOG_APPEND_TIME | batches.TRANSACTIONAL | batches.DELETE_HORIZON
    history.plain(2, flags=batches.LOG_APPEND_TIME).plain(1, flags=batches.DELETE_HORIZON)
    history.plain(3, flags=batches.LOG_APPEND_TIME | batches.DELETE_HORIZON, codec=Codec.GZIP)
    brokers.run()
    brokers.assert_exact(history)
    assert all(not each.header.attributes & flags for each in batches_of(brokers.destination.log("topic")))


def test_stopped_partition_releases_the_data_of_its_fetches(brokers: TwoBrokers) -> None:
    class Read:
        """Data that a task has read from a cluster."""

    def raised() -> tuple[PartitionStopped, weakref.ref[Read]]:
        read = Read()
        try:
            try:
                raise ShoalError("cause")
            except ShoalError as error:
                raise PartitionStopped("topic", 0, 3, "reason") from error
        except PartitionStopped as error:
            return error, weakref.ref(read)

    copy = PartitionCopy(Assigned(1, CopyRange("topic", 0, "topic", 0, 9)), brokers.settings)
    error, read = raised()
    copy.stop_with(error)
    del error
    assert read() is None
    assert re.search(r"topic-0.*stopped.*3", str(copy.state.stopped))


@pytest.fixture
def refused_once(brokers: TwoBrokers) -> PartitionCopy:
    """A partition whose batch at offset 5 was refused."""
    copy = PartitionCopy(Assigned(1, CopyRange("topic", 0, "topic", 0, 9)), brokers.settings)
    copy.suspect(5, "it is refused")
    return copy


def test_suspect_second_refusal_soon_stops_the_partition(refused_once: PartitionCopy) -> None:
    refused_once.suspect(5, "it is refused")
    assert refused_once.state.stopped is not None
    assert all(each in refused_once.state.stopped.reason for each in ("it is refused", "second try"))


def test_suspect_second_refusal_minutes_later_counts_as_the_first(brokers: TwoBrokers) -> None:
    settings = brokers.with_timing(forget_refusal_s=0.0).settings
    copy = PartitionCopy(Assigned(1, CopyRange("topic", 0, "topic", 0, 9)), settings)
    for _ in range(2):
        copy.suspect(5, "it is refused")
        assert copy.troubles.at(5, Trouble.EXPLAINED) is None
    assert copy.state.stopped is None
    assert copy.state.waiting_for is not None
    assert "second try" in copy.state.waiting_for


def test_suspect_within_its_patience_is_tried_again(refused_once: PartitionCopy) -> None:
    for _ in range(4):
        refused_once.suspect(5, "error -1", patience_s=60.0)
        assert refused_once.state.stopped is None
    refused_once.suspect(5, "error -1", patience_s=1e-9)
    assert refused_once.state.stopped is not None
    assert all(each in refused_once.state.stopped.reason for each in ("error -1", "4 more tries"))


def test_suspect_explained_refusal_after_unexplained_ones_counts_as_the_first(brokers: TwoBrokers) -> None:
    copy = PartitionCopy(Assigned(1, CopyRange("topic", 0, "topic", 0, 9)), brokers.settings)
    for _ in range(2):
        copy.suspect(5, "error -1", patience_s=60.0)
    copy.suspect(5, "it is refused")
    assert copy.state.stopped is None
    assert copy.troubles.at(5, Trouble.EXPLAINED) is not None


def test_second_refusal_after_a_long_outage_counts_as_the_first(
    brokers: TwoBrokers, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tries to align that fail, each for as long as a request may take, are no work on the partition."""
    late_s, tries, align = 0.0, 0, resume.resume_partitions
    brokers = brokers.with_timing(clock=Clock(lambda: time.monotonic() + late_s))

    def resume_partitions(copies: Sequence[PartitionCopy], *args: Any) -> Any:
        nonlocal late_s, tries
        tries += 1
        if not 2 <= tries <= 21:
            return align(copies, *args)
        late_s += brokers.settings.timing.forget_refusal_s / 10
        return {copy.source: BrokerError(ErrorCode.REQUEST_TIMED_OUT, "topic-0") for copy in copies}

    monkeypatch.setattr(aligner, "resume_partitions", resume_partitions)
    history.plain(1, 1)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, times=2)
    result = brokers.start().result()
    assert (result.stopped, tries) == ((), 23)
    brokers.assert_exact(history)
