"""Both pumps whose destination answers wrongly: they end alike, and count nothing that is not there."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.native import NATIVE, LotRow
from shoal.protocol.apis import ApiKey
from tests.fuzz.effort import effort
from tests.fuzz.liar import Lie, changed_fields, damaged_bytes, no_kafka
from tests.native import pumping
from tests.native.lockstep import Limits, Schedule, connected, replayed, scheduled
from tests.native.pumping import Destination, Hangup, lot, pump, served
from tests.native_path import PATHS, needs_native

#: A pump's wait for an answer that never comes; the test allows for a few of these.
_WAIT_MS = 150


@pytest.fixture(params=PATHS)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumping, "NATIVE", NATIVE if request.param else None)


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize("lie", [damaged_bytes, no_kafka, changed_fields])
@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 3))
@effort(15)
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
    with served(destination) as connection:
        pumped = pump(connection, lots, wait_ms=_WAIT_MS)
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


_OLD_MS, _NEW_MS = 1000, 2000


def drawn_lots(draw: random.Random, value_bytes: int) -> list[LotRow]:
    """Draw batches of some partitions of two topics, in one buffer or several, some of them old."""
    lots = []
    for number in range(draw.randint(1, 4)):
        cuts = [draw.randrange(500) for _ in range(draw.choice([0, 0, 1, 3]))]
        times = draw.choices([_NEW_MS, _OLD_MS, -1], [30, 1, 1], k=draw.randint(5, 12))
        lots.append(
            lot(
                number // 2,
                topic=number % 2,
                base_offset=draw.choice([0, 7]),
                newest_ms=draw.choice([None, _OLD_MS, _NEW_MS, _NEW_MS]),
                times_ms=times,
                together_bytes=draw.choice([0, 0, 250, 10_000]),
                ends_of_buffers=sorted(cuts),
                values=[bytes(value_bytes)] * 2,
            )
        )
    return lots


@needs_native
@given(st.integers(0, 2**64))
@effort(75)
def test_both_pumps_send_and_hand_back_the_same(seed: int) -> None:
    draw = random.Random(seed)
    # With the small one, the kernel takes a few requests at a time, the last of them in part.
    send_buffer = draw.choice([None, None, 4608])
    lots = drawn_lots(draw, 10 if send_buffer is None else 1000)
    limits = Limits(draw.randint(1, 5), draw.choice([_OLD_MS, _OLD_MS, 0, _NEW_MS]))
    options: dict[str, Any] = {
        **limits._asdict(),
        "refill_at": draw.randint(0, 4),
        "request_bytes": draw.choice([1, 400, 1 << 20]),
        "max_answer_bytes": 10_000,
    }
    with ExitStack() as stack:
        ends = stack.enter_context(connected(send_buffer))
        schedule = Schedule(lots, limits, ends, draw)
        stack.enter_context(scheduled(schedule))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(pumping, "NATIVE", None)
        in_python = pump(ends.pump, lots, gate=ends.gate, **options)
        sent = bytes(schedule.sent + ends.take())
    if schedule.landed is not None:
        assert in_python.landed == schedule.landed
    with connected(send_buffer) as ends:
        with replayed(schedule.events, ends) as sent_natively:
            native = pump(ends.pump, lots, gate=ends.gate, **options)
        assert native == in_python
        assert sent_natively == sent
