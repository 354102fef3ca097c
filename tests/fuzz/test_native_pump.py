"""Both pumps whose destination answers wrongly: they end, and count nothing that is not there."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.native import NATIVE
from shoal.protocol.apis import ApiKey
from tests.fuzz.effort import effort
from tests.fuzz.liar import Lie, changed_fields, damaged_bytes, no_kafka
from tests.native import pumping
from tests.native.pumping import Destination, Hangup, lot, pump, served
from tests.native_path import PATHS

#: A pump's wait for an answer that never comes; the test allows for a few of these.
_WAIT_MS = 150


@pytest.fixture(params=PATHS, autouse=True)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumping, "NATIVE", NATIVE if request.param else None)


@pytest.mark.parametrize("lie", [damaged_bytes, no_kafka, changed_fields])
@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 3))
@effort(60)
def test_pump_counts_only_landed_batches_with_any_response(
    lie: Lie, seed: int, first: int, times: int
) -> None:
    draw = random.Random(seed)

    def answer(number: int, honest: bytes) -> bytes:
        if not first <= number < first + times:
            return honest
        told = lie(honest, ApiKey.PRODUCE, 12, draw)
        if lie is no_kafka and len(told) < 4:
            raise Hangup
        return told

    destination = Destination(answer)
    lots = [lot(0, 8, together_bytes=draw.choice([0, 500])), lot(1, 3), lot(0, 5, topic=1)]
    began = time.monotonic()
    with served(destination) as connection:
        pumped = pump(connection, lots, wait_ms=_WAIT_MS)
    assert time.monotonic() - began < 20
    assert (pumped.end == "done") <= (pumped.landed == [8, 3, 5])
    places = [("topic", 0), ("topic", 1), ("other", 0)]
    reached = list(pumped.landed)
    for parts, _ in pumped.handed_back:
        for number, begin, end in parts:
            assert begin == reached[number] < end
            reached[number] = end
    for place, landed, sent in zip(places, pumped.landed, reached, strict=True):
        arrived = sum(request.get(place, 0) for request in destination.requests)
        assert landed <= arrived <= sent
        assert destination.ends[place] == 2 * arrived
