"""The first and last offset of a log, offsets by timestamp, and ends of leader epochs."""

import pytest

from shoal.error_codes import ErrorCode
from shoal.records import Codec
from tests.broker.wire import Wire
from tests.world.batches import TIMESTAMP, batch

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -2, -1, -3, -4


@pytest.mark.parametrize("version", range(1, 9))
def test_empty_log_begins_and_ends_at_0(wire: Wire, topic: str, version: int) -> None:
    for timestamp in (EARLIEST, LATEST):
        found = wire.list_offset(topic, timestamp, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, 0, -1)


@pytest.mark.administrators
def test_deleted_records_move_the_log_start(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(3))
    wire.produce(topic, batch(3))
    assert wire.delete_records(topic, 4).low_watermark == 4
    assert wire.list_offset(topic, EARLIEST).offset == 4
    assert wire.list_offset(topic, EARLIEST_LOCAL).offset == 4
    assert wire.list_offset(topic, LATEST).offset == 6


@pytest.mark.administrators
def test_delete_records_to_minus_1_deletes_all(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(3))
    assert wire.delete_records(topic, -1).low_watermark == 3
    assert wire.list_offset(topic, EARLIEST).offset == 3


@pytest.mark.administrators
def test_delete_records_beyond_the_end_is_out_of_range(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(3))
    assert wire.delete_records(topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (TIMESTAMP, 0)),
        (TIMESTAMP, (TIMESTAMP, 0)),
        (TIMESTAMP + 1, (TIMESTAMP + 1, 1)),
        (TIMESTAMP + 2, (TIMESTAMP + 2, 2)),
        (TIMESTAMP + 3, (TIMESTAMP + 100, 3)),
        (TIMESTAMP + 102, (TIMESTAMP + 102, 5)),
        (TIMESTAMP + 103, (-1, -1)),
        (MAX_TIMESTAMP, (TIMESTAMP + 102, 5)),
    ],
)
def test_timestamp_finds_the_first_record_not_earlier(
    wire: Wire, topic: str, timestamp: int, expected: tuple[int, int]
) -> None:
    wire.produce(topic, batch(3))
    wire.produce(topic, batch(3, base_timestamp=TIMESTAMP + 100))
    wire.produce(topic, batch(1, base_timestamp=TIMESTAMP + 50))
    found = wire.list_offset(topic, timestamp)
    assert (found.timestamp, found.offset) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_timestamp_finds_a_record_inside_a_compressed_batch(wire: Wire, topic: str, codec: Codec) -> None:
    wire.produce(topic, batch(3))
    wire.produce(topic, batch(3, base_timestamp=TIMESTAMP + 100, codec=codec))
    for timestamp, expected in (
        (TIMESTAMP + 100, (TIMESTAMP + 100, 3)),
        (TIMESTAMP + 101, (TIMESTAMP + 101, 4)),
        (MAX_TIMESTAMP, (TIMESTAMP + 102, 5)),
    ):
        found = wire.list_offset(topic, timestamp)
        assert (found.timestamp, found.offset) == expected


def test_empty_log_has_no_record_for_any_timestamp(wire: Wire, topic: str) -> None:
    for timestamp in (0, 2**63 - 1, MAX_TIMESTAMP):
        found = wire.list_offset(topic, timestamp)
        assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(
    ("version", "timestamp"),
    [(6, MAX_TIMESTAMP), (7, EARLIEST_LOCAL), (8, -5), (8, -10), (8, -(2**63))],
)
def test_special_timestamp_that_its_version_lacks_is_unsupported(
    wire: Wire, topic: str, version: int, timestamp: int
) -> None:
    found = wire.list_offset(topic, timestamp, version=version)
    assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


def test_missing_partition_is_unknown(wire: Wire, topic: str) -> None:
    found = wire.list_offset(topic, LATEST, partition=1)
    assert (found.error_code, found.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_newer_leader_epoch_is_unknown(wire: Wire, topic: str) -> None:
    assert wire.list_offset(topic, LATEST, leader_epoch=0).error_code == ErrorCode.NONE
    found = wire.list_offset(topic, LATEST, leader_epoch=1)
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [2, 3, 4])
def test_current_leader_epoch_ends_at_the_log_s_end(wire: Wire, topic: str, version: int) -> None:
    wire.produce(topic, batch(3))
    found = wire.end_of_epoch(topic, 0, version=version)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 3)


def test_unknown_leader_epoch_has_no_end(wire: Wire, topic: str) -> None:
    found = wire.end_of_epoch(topic, 7)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, -1, -1)


def test_end_of_epoch_with_newer_current_epoch_is_refused(wire: Wire, topic: str) -> None:
    found = wire.end_of_epoch(topic, 0, current_leader_epoch=1)
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
