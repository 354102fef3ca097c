"""Counts of headers, without a broker."""

from __future__ import annotations

import pytest

from shoal.inspect.facts import FUTURE_MS, MOST_PRODUCERS, Facts
from shoal.records import BatchHeader
from tests.world import batches

NOW_MS = 1_772_366_400_000


def header(count: int = 1, **fields: object) -> BatchHeader:
    return batches.view(batches.batch(count, **{"base_timestamp": NOW_MS, **fields})).header  # type: ignore[arg-type]


def facts_of(*headers: BatchHeader, start: int = 0) -> Facts:
    facts = Facts("orders", NOW_MS)
    facts.begin_run(start)
    for each in headers:
        facts.see(each)
    facts.end(0)
    return facts


def test_timestamp_more_than_an_hour_ahead_lies_in_the_future() -> None:
    facts = facts_of(
        header(base_timestamp=NOW_MS + FUTURE_MS),
        header(base_offset=1, base_timestamp=NOW_MS + FUTURE_MS + 1),
    )
    assert (facts.future_batches, facts.most_ahead_ms) == (1, FUTURE_MS + 1)
    assert facts.newest_ms == NOW_MS + FUTURE_MS


def test_batch_older_than_the_one_in_front_goes_backwards() -> None:
    times = [0, 500, 200, 700]
    facts = facts_of(
        *(header(base_offset=number, base_timestamp=NOW_MS + each) for number, each in enumerate(times))
    )
    assert (facts.backward_batches, facts.most_backward_ms) == (1, 300)


def test_first_batch_of_another_run_is_not_compared() -> None:
    facts = facts_of(header(base_timestamp=NOW_MS))
    facts.begin_run(100)
    facts.see(header(base_offset=100, base_timestamp=NOW_MS - 1000))
    assert (facts.backward_batches, facts.runs) == (0, [(0, 1), (100, 101)])


def test_producers_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.inspect.facts.MOST_PRODUCERS", 2)
    assert MOST_PRODUCERS > 2
    facts = facts_of(*(header(base_offset=number, producer_id=number % 4) for number in range(8)))
    assert (list(facts.producers), facts.other_batches) == ([0, 1], 4)


def test_sum_keeps_the_producers_with_the_most_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.inspect.facts.MOST_PRODUCERS", 2)
    facts = facts_of(header(producer_id=1), header(base_offset=1, producer_id=2))
    facts.add(facts_of(*(header(base_offset=number, producer_id=3 - number % 2) for number in range(5))))
    assert {each: counts.batches for each, counts in facts.producers.items()} == {2: 3, 3: 3}
    assert facts.other_batches == 1
