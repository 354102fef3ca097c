"""The sessions that the broker keeps, and their end."""

from __future__ import annotations

import pytest

from shoal.error_codes import ErrorCode
from shoal_broker import Broker
from shoal_broker.coordination.fetch_sessions import FetchSessions
from tests.broker.fetch_session import Session, everything, sizes
from tests.broker.new_topic import NewTopic
from tests.broker.wire import Wire


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(3)


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
