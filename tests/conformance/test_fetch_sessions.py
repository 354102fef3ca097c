"""The broker's state of a fetch session, and the partitions that its responses omit (KIP-227)."""

from __future__ import annotations

import time

import pytest

from shoal.error_codes import ErrorCode
from tests.broker.fetch_session import Session, everything, sizes
from tests.broker.new_topic import NewTopic
from tests.broker.wire import Wire
from tests.world.batches import batch

#: One batch of the tests, in bytes.
SIZE = len(batch([b"x" * 100] * 2))


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(3)


def produce(wire: Wire, topic: str, partition: int, batches: int = 1) -> None:
    for _ in range(batches):
        produced = wire.produce(topic, batch([b"x" * 100] * 2), partition=partition)
        assert produced.error_code == ErrorCode.NONE


def test_missing_session_is_not_found(wire: Wire, topic: str) -> None:
    response = wire.fetch_all([(topic, 0, 0)], session_id=12_345, session_epoch=1)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(response.partitions) == []


def test_new_session_returns_its_id_and_all_partitions(wire: Wire, topic: str) -> None:
    produce(wire, topic, 1)
    session = Session(wire, everything(topic))
    assert session.id > 0
    assert sizes(session.opening) == {0: 0, 1: SIZE, 2: 0}


def test_response_has_only_changed_partitions(wire: Wire, topic: str) -> None:
    session = Session(wire, everything(topic))
    assert sizes(session.fetch()) == {}
    produce(wire, topic, 2)
    response = session.fetch(max_wait_ms=5_000, min_bytes=1)
    assert response.session_id == session.id
    assert sizes(response) == {2: SIZE}
    assert response.partitions[0].high_watermark == 2


def test_partition_with_unread_records_is_returned_again(wire: Wire, topic: str) -> None:
    produce(wire, topic, 0)
    session = Session(wire, everything(topic))
    assert sizes(session.fetch()) == {0: SIZE}
    assert sizes(session.fetch((topic, 0, 2))) == {}


def test_higher_end_without_records_is_a_change(wire: Wire, topic: str) -> None:
    produce(wire, topic, 0)
    session = Session(wire, [(topic, 0, 2), (topic, 1, 0)])
    produce(wire, topic, 1)
    # The first takes all the room: of the other there is only its end.
    produce(wire, topic, 0)
    response = session.fetch(max_bytes=1)
    assert sizes(response) == {0: SIZE, 1: 0}
    assert [each.high_watermark for each in response.partitions] == [4, 2]


@pytest.mark.administrators
def test_later_log_start_is_a_change(wire: Wire, topic: str) -> None:
    produce(wire, topic, 0, batches=2)
    session = Session(wire, [(topic, 0, 4), (topic, 1, 0)])
    wire.delete_records(topic, 2)
    response = session.fetch()
    assert sizes(response) == {0: 0}
    assert response.partitions[0].log_start_offset == 2
    assert sizes(session.fetch()) == {}


def test_error_is_returned_each_time_until_it_is_over(wire: Wire, topic: str) -> None:
    produce(wire, topic, 0)
    session = Session(wire, [(topic, 0, 2), (topic, 1, 0)])
    for wanted in ([(topic, 0, 99)], []):
        (fetched,) = session.fetch(*wanted).partitions
        assert (fetched.partition, fetched.error_code) == (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    (fetched,) = session.fetch((topic, 0, 2)).partitions
    assert (fetched.partition, fetched.error_code, fetched.high_watermark) == (0, ErrorCode.NONE, 2)


def test_partition_with_records_is_served_last(wire: Wire, topic: str) -> None:
    for partition in range(3):
        produce(wire, topic, partition, batches=3)
    session = Session(wire, everything(topic), max_bytes=SIZE)
    assert sizes(session.opening) == {0: SIZE, 1: 0, 2: 0}
    # An answer in full leaves the order as it was.
    assert sizes(session.fetch((topic, 0, 2), max_bytes=SIZE)) == {0: SIZE}
    assert sizes(session.fetch((topic, 0, 4), max_bytes=SIZE)) == {1: SIZE}
    assert sizes(session.fetch((topic, 1, 2), max_bytes=SIZE)) == {2: SIZE}
    assert sizes(session.fetch((topic, 2, 2), max_bytes=SIZE)) == {0: SIZE}


def test_session_adds_and_forgets_partitions(wire: Wire, topic: str) -> None:
    session = Session(wire, [(topic, 0, 0)])
    assert sizes(session.fetch((topic, 1, 0))) == {1: 0}
    produce(wire, topic, 0)
    produce(wire, topic, 1)
    assert sizes(session.fetch(forgotten=[(topic, 0)])) == {1: SIZE}


def test_session_without_partitions_ends(wire: Wire, topic: str) -> None:
    session = Session(wire, [(topic, 0, 0)])
    assert session.fetch(forgotten=[(topic, 0)]).session_id == 0
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7, -2])
def test_epoch_out_of_sequence_is_refused(wire: Wire, topic: str, epoch: int) -> None:
    session = Session(wire, everything(topic))
    response = session.fetch(epoch=epoch)
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (response.session_id, list(response.partitions)) == (0, [])
    assert sizes(session.fetch()) == {}


def test_final_epoch_closes_the_session(wire: Wire, topic: str) -> None:
    produce(wire, topic, 0)
    session = Session(wire, everything(topic))
    response = session.fetch((topic, 0, 0), epoch=-1)
    assert (response.session_id, sizes(response)) == (0, {0: SIZE})
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_initial_epoch_replaces_the_given_session(wire: Wire, topic: str) -> None:
    first = Session(wire, everything(topic))
    response = first.fetch(*everything(topic), epoch=0)
    assert response.session_id not in (0, first.id)
    assert first.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_without_changes_waits(wire: Wire, topic: str) -> None:
    session = Session(wire, everything(topic))
    started = time.monotonic()
    assert sizes(session.fetch(max_wait_ms=300, min_bytes=1)) == {}
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("version", range(7, 13))
def test_sessions_work_in_all_versions(wire: Wire, topic: str, version: int) -> None:
    session = Session(wire, everything(topic), version=version)
    produce(wire, topic, 1)
    assert sizes(session.fetch(version=version)) == {1: SIZE}
