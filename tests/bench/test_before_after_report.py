"""The table and the chart of mirrors before and after."""

from dataclasses import replace

import pytest

from bench.before_after_report import Run, chart, table

DEEP = Run(
    topic="b256_gzip",
    mover="MirrorMaker 1",
    gigabytes=0.5,
    samples=((0.0, 0.0, 200_000_000), (2.0, 8.0, 300_000_000), (4.0, 10.0, 250_000_000)),
    gc_pauses_s=(0.010, 0.030),
    batches=4,
    batch_bytes=400_000,
    batch_records=1024,
    conversions=0,
)
SHALLOW = replace(
    DEEP, mover="shoal", samples=((0.0, 0.0, 1_000_000), (1.0, 1.0, 2_000_000)), gc_pauses_s=(), conversions=5
)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_row_has_medians_and_extremes() -> None:
    slower = replace(DEEP, samples=((0.0, 0.0, 0), (5.0, 20.0, 310_000_000)))
    fastest = replace(DEEP, samples=((0.0, 0.0, 0), (2.0, 5.0, 300_000_000)))
    row = cells(table([slower, DEEP, fastest]).splitlines()[2])
    assert row == [
        "b256_gzip",
        "MirrorMaker 1",
        "20.00 (10.00 to 40.00)",
        "**100%**",
        "125 (100 to 250)",
        "300 (300 to 310)",
        "2",
        "40",
        "30",
        "100.0",
        "256",
        "0",
    ]


def test_share_is_relative_to_the_first_mover_of_the_topic() -> None:
    other = replace(DEEP, topic="b256_lz4", samples=((0.0, 0.0, 0), (1.0, 2.0, 1_000_000)))
    lines = table([DEEP, SHALLOW, other, replace(SHALLOW, topic="b256_lz4")]).splitlines()[2:6]
    assert [cells(line)[3] for line in lines] == ["**100%**", "**10%**", "**100%**", "**50%**"]


def test_mover_without_garbage_collection_has_no_pauses() -> None:
    row = cells(table([SHALLOW]).splitlines()[2])
    assert row[6:9] == ["0", "0", "0"]
    assert row[-1] == "5"


def test_chart_has_the_kip_s_numbers() -> None:
    drawn = chart([DEEP, SHALLOW])
    assert drawn.startswith("<svg")
    for text in ("MirrorMaker 1", "shoal", "KIP-712, before: 50 %", "after: 15 %", "GC, ms", "conversions"):
        assert text in drawn


@pytest.mark.parametrize("samples", [((0.0, 0.0, 1), (0.2, 0.1, 1))])
def test_chart_of_a_run_shorter_than_a_step_is_drawn(samples: tuple[tuple[float, float, int], ...]) -> None:
    assert chart([replace(DEEP, samples=samples)]).startswith("<svg")
