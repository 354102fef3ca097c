"""The broker's state of a fetch session, and the partitions that its responses omit (KIP-227)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.fetch import FetchResponse
from shoal_broker import Broker
from shoal_broker.coordination.fetch_sessions import FetchSessions
from tests.batches import batch
from tests.broker.conftest import NewTopic
from tests.broker.wire import Wire

#: One batch of the tests, in bytes.
SIZE = len(batch([b"x" * 100] * 2))


class Session:
    """A session on a connection; counts its epochs."""

    def __init__(self, wire: Wire, wanted: Sequence[tuple[str, int, int]], **options: int) -> None:
        self._wire = wire
        self.opening = wire.fetch_all(list(wanted), session_epoch=0, **options)
        self.id = self.opening.session_id
        self.epoch = 1

    def fetch(
        self,
        *wanted: tuple[str, int, int],
        forgotten: Sequence[tuple[str, int]] = (),
        epoch: int | None = None,
        **options: int,
    ) -> FetchResponse:
        response = self._wire.fetch_all(
            list(wanted),
            forgotten=forgotten,
            session_id=self.id,
            session_epoch=self.epoch if epoch is None else epoch,
            **options,
        )
        if epoch is None and not response.error_code:
            self.epoch += 1
        return response


def sizes(response: FetchResponse) -> dict[int, int]:
    """Return the sizes of record sets by partition, in the order of the answer."""
    assert response.error_code == ErrorCode.NONE
    return {each.partition: len(each.record_set) for each in response.partitions}


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(3)


def produce(wire: Wire, topic: str, partition: int, batches: int = 1) -> None:
    for _ in range(batches):
        produced = wire.produce(topic, batch([b"x" * 100] * 2), partition=partition)
        assert produced.error_code == ErrorCode.NONE


def everything(topic: str) -> list[tuple[str, int, int]]:
    return [(topic, partition, 0) for partition in range(3)]


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


# State of the embedded broker alone


@pytest.fixture
def slots(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> FetchSessions:
    """The broker's sessions: none, and room for two."""
    broker.fetch_sessions.forget_all()
    monkeypatch.setattr(broker.fetch_sessions, "slots", 2)
    return broker.fetch_sessions


def test_session_is_refused_if_there_are_no_slots(wire: Wire, topic: str, slots: FetchSessions) -> None:
    slots.slots = 0
    refused = Session(wire, everything(topic))
    assert refused.id == 0
    assert sizes(refused.opening) == {0: 0, 1: 0, 2: 0}


def test_least_recently_used_session_gives_way_to_a_new_one(
    wire: Wire, topic: str, slots: FetchSessions
) -> None:
    first, second = Session(wire, everything(topic)), Session(wire, everything(topic))
    assert sizes(first.fetch()) == {}
    assert Session(wire, everything(topic)).id > 0
    assert second.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sizes(first.fetch()) == {}


def test_restart_forgets_the_sessions() -> None:
    with Broker() as broker:
        broker.create_topic("topic")
        with Wire(broker.bootstrap) as wire:
            session = Session(wire, [("topic", 0, 0)])
        broker.stop()
        broker.start()
        with Wire(broker.bootstrap) as wire:
            response = wire.fetch_all([], session_id=session.id, session_epoch=1)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
