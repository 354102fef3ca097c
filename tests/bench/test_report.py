"""The arithmetic of the table."""

from dataclasses import replace

import pytest

from bench.measure import Usage
from bench.report import Result, table

SMALL = Usage(
    wall_s=5.0,
    jvm_cpu_s=4.0,
    python_cpu_s=1.0,
    source_cpu_s=0.2,
    destination_cpu_s=2.0,
    jvm_peak_rss=500_000_000,
    python_peak_rss=50_000_000,
)
LARGE = replace(SMALL, wall_s=13.0, jvm_cpu_s=5.6, python_cpu_s=3.4, source_cpu_s=1.0, destination_cpu_s=10.0)
RESULT = Result(
    topic="b16_lz4",
    mover="mover",
    wire_bytes=500_000_000,
    small_bytes=200_000_000,
    large_bytes=1_000_000_000,
    small=SMALL,
    large=LARGE,
)


def test_steady_cost_is_that_of_further_bytes() -> None:
    assert RESULT.steady("jvm_cpu_s") == pytest.approx(2.0)
    assert RESULT.steady("python_cpu_s") == pytest.approx(3.0)
    assert RESULT.steady("wall_s") == pytest.approx(10.0)


def test_start_cost_is_the_rest_of_the_small_run() -> None:
    assert RESULT.start("wall_s") == pytest.approx(3.0)
    assert RESULT.start("jvm_cpu_s") == pytest.approx(3.6)


def test_row_has_all_figures() -> None:
    cells = [cell.strip() for cell in table([RESULT]).splitlines()[2].strip("|").split("|")]
    expected = ["b16_lz4", "50%", "mover", "100", "**5.00**", "2.00", "3.00", "1.00", "10.00", "3.0", "4.0"]
    assert cells == [*expected, "500", "50"]
