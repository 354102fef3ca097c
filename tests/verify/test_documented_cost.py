"""The arithmetic of docs/verify.md, against the measurements in bench/results.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "bench" / "results.md").read_text(encoding="utf-8")

#: A topic of 1 TB, on both sides.
MEGABYTES = 2_000_000
CORES = 4


def medians(batches: str, shoal: str) -> list[int]:
    """Return the MB/s a core of all runs."""
    return [
        int(found)
        for found in re.findall(rf"^\| b\d+_lz4, {batches} \| {shoal} \| \*\*(\d+) ", RESULTS, re.M)
    ]


@pytest.mark.parametrize(
    ("row", "batches", "shoal", "pick"),
    [
        ("9 KB", "9 KB", "native", max),
        ("9 KB, worst", "9 KB", "native", min),
        ("9 KB, without the native module", "9 KB", "pure Python", max),
        ("9 KB, without the native module, worst", "9 KB", "pure Python", min),
        ("468 KB", "468 KB", "native", max),
        ("468 KB, worst", "468 KB", "native", min),
    ],
)
def test_documented_minutes_follow_from_the_measured_speeds(
    row: str, batches: str, shoal: str, pick: Callable[[list[int]], int]
) -> None:
    found = re.search(rf"^\| {row} \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|$", PAGE, re.M)
    assert found
    speed, cpu_s, minutes = (float(each.replace(",", "")) for each in found.groups())
    assert speed == pick(medians(batches, shoal))
    assert cpu_s == round(MEGABYTES / speed)
    assert minutes == round(MEGABYTES / speed / CORES / 60, 1)


def test_documented_cost_of_a_gigabyte_is_that_of_the_newest_aims() -> None:
    _, _, newest = RESULTS.partition("\n## 2026-11-23\n")
    for name, shoal, cost in (
        ("b16_lz4, 9 KB", "native", "0.37"),
        ("b1024_lz4, 468 KB", "native", "0.21"),
        ("b16_lz4, 9 KB", "pure Python", "0.58"),
        ("b1024_lz4, 468 KB", "pure Python", "0.23"),
    ):
        row = next(line for line in newest.splitlines() if line.startswith(f"| {name} | {shoal} |"))
        assert row.split(" | ")[4].startswith(f"{cost} ")
        assert cost in PAGE.partition("## Cost")[2]
