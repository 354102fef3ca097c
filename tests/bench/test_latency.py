"""Percentiles."""

import math

from bench.latency import Percentiles


def test_percentiles_are_measured_times() -> None:
    found = Percentiles.of(reversed(range(1, 1001)))
    assert found == Percentiles(1000, p50=500, p90=900, p99=990, p999=999, longest=1000)
    assert Percentiles.of([7.5]) == Percentiles(1, 7.5, 7.5, 7.5, 7.5, 7.5)


def test_percentiles_of_no_times_are_nan() -> None:
    found = Percentiles.of([])
    assert found.count == 0
    assert math.isnan(found.p50)
    assert math.isnan(found.longest)
