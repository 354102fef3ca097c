"""The page of the figures is made from the newest run of each row."""

from pathlib import Path

import pytest

from bench import page
from bench.figures import shown, table
from bench.runs import Run, Section, newest, read_runs, write_run

CPU = "CPU-s/GB"
RATIO = "MirrorMaker 2 costs, times"


@pytest.mark.parametrize(
    ("quantity", "turns", "expected"),
    [
        pytest.param(CPU, [3.0, 1.0, 2.5], "2.50 (1-3)", id="median and extremes"),
        pytest.param(CPU, [2.001, 2.002, 2.003], "2.00", id="turns that look the same"),
        pytest.param(CPU, [1234.5, 15.55], "625 (15.6-1,234)", id="three digits"),
        pytest.param(RATIO, [20.0, 33.0, 21.0], "20-33", id="a ratio has no median"),
        pytest.param(CPU, [], "", id="not measured"),
    ],
)
def test_figure_is_shown_by_its_turns(quantity: str, turns: list[float], expected: str) -> None:
    assert shown(quantity, turns) == expected


def test_table_has_a_column_for_each_quantity_of_any_subject() -> None:
    lines = table({"a": {CPU: [1.0]}, "b": {CPU: [2.0], "MB/s": [100.0]}}).splitlines()
    assert lines[0] == "|  | CPU-s/GB | MB/s |"
    assert lines[2:] == ["| a | 1 |  |", "| b | 2 | 100 |"]


def run(date: str, **costs: float) -> Run:
    sections = {
        name: Section(name, f"conditions of {date}", {"shoal, native": {CPU: [cost] * 3}})
        for name, cost in costs.items()
    }
    return Run(date, "abc", "a machine", sections)


def test_runs_of_a_day_are_kept_and_the_newest_of_each_row_counts(tmp_path: Path) -> None:
    older, newer = run("2026-01-02", b16_lz4=1.0, tls=3.0), run("2026-01-02", b16_lz4=2.0)
    paths = [write_run(each, tmp_path) for each in (older, newer)]
    assert [path.name for path in paths] == ["2026-01-02.json", "2026-01-02-2.json"]
    assert read_runs(tmp_path) == [older, newer]
    assert newest(read_runs(tmp_path)) == {"b16_lz4": newer, "tls": older}


def test_page_has_the_newest_figures_and_the_verdict_of_each_aim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run("2026-01-02", b16_lz4=0.5, b1_lz4=7.0), run("2026-01-03", b16_lz4=0.25)]
    monkeypatch.setattr(page, "read_runs", lambda: runs)
    page.write_page(["b16_lz4", "b1_lz4"], tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert "| 16 records a batch | CPU-s/GB: at most 0.9 | 0.25 | met |" in text
    assert "| 1 record | CPU-s/GB: at most 6 | 7 | **missed** |" in text
    assert "not measured" in text
    assert "conditions of 2026-01-03" in text
    assert (tmp_path / "performance-cost.svg").read_text().startswith("<svg")


def test_page_of_the_repository_is_that_of_its_runs(tmp_path: Path) -> None:
    from bench.__main__ import ROWS

    page.write_page(ROWS, tmp_path)
    committed = Path(__file__).parents[2] / "docs" / "performance.md"
    assert (tmp_path / "performance.md").read_text() == committed.read_text(), "run python -m bench.page"
