"""The benchmark runs, on topics too small for meaningful numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

from rig import KAFKA_VERSION

ROOT = Path(__file__).parents[2]


def run_bench(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "bench", "--scale", "0.02", "--repeat", "1", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_row_is_measured_with_every_peer() -> None:
    printed = run_bench()
    cells = {cell.strip() for line in printed.splitlines() for cell in line.split("|")}
    assert {"MirrorMaker 2, tuned", "confluent-kafka loop", "copy loop, pure Python", "floor"} <= cells
    aims = [line for line in printed.splitlines() if line.startswith("|") and "at most" in line]
    # The aims of the native path have no figures where it is not built.
    assert any("pure Python" in line for line in aims)
    assert not any("not measured" in line for line in aims if "pure Python" in line)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_other_commit_is_compared_with_this_one() -> None:
    printed = run_bench("--before", "HEAD", "--rows", "b16_lz4", "verify")
    compared = [
        line for line in printed.splitlines() if line.startswith("| b16_lz4 | shoal") and "times" in line
    ]
    assert any("CPU-s/GB" in line for line in compared)
    assert "| verify | b16_lz4, pure Python | wire MB/s a core |" in printed


@pytest.mark.long
@pytest.mark.timeout(900)
def test_mirrors_are_measured_before_and_after() -> None:
    sizes = ["--topics", "b256_lz4", "b256_lz4_to_gzip", "--megabytes", "4", "--repeat", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "bench.before_after", "--movers", "mm1", "raw", *sizes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in result.stdout.splitlines()]
    # 4,000 records in batches of 256 over 4 partitions; if the codec differs, the broker converts all.
    for topic, conversions in {"b256_lz4": 0, "b256_lz4_to_gzip": 4000}.items():
        measured = {row[2]: row for row in rows if len(row) > 2 and row[1] == topic}
        assert set(measured) == {"MirrorMaker 1 (deep)", "shoal mirror-maker --use.raw.bytes"}
        for row in measured.values():
            assert float(row[3]) > 0, "CPU-s/GB"
        whole = measured["shoal mirror-maker --use.raw.bytes"]
        assert whole[-3] == "250", "records a batch: whole batches go through as they are"
        assert int(whole[-2]) == conversions


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_translation_of_groups_is_measured() -> None:
    small = ["--scale", "0.05", "--kafka", KAFKA_VERSION, "--repeat", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "bench.following", *small],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in result.stdout.splitlines()]
    verdicts = {row[1]: row[-2] for row in rows if len(row) > 6}
    translated = {name: verdict for name, verdict in verdicts.items() if "position" in name}
    assert set(translated.values()) == {"met"}
    assert len(translated) >= 6
    assert any(name.startswith("cut-over of 60 partitions") for name in verdicts)
    assert any("% of a core" in name for name in verdicts)
