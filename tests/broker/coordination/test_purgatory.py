"""Requests that wait, and a broker that stops meanwhile."""

import threading

import pytest

from shoal_broker.coordination.purgatory import NobodyWaits, Purgatory


def test_stop_just_before_a_wait_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    purgatory = Purgatory()

    class Event(threading.Event):
        def clear(self) -> None:
            purgatory.close()
            super().clear()

    monkeypatch.setattr(threading, "Event", Event)
    with pytest.raises(NobodyWaits):
        purgatory.wait_for(lambda: False, (), 60)
