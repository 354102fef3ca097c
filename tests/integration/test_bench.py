"""The benchmark runs, on topics too small for meaningful numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_every_peer_copies_a_small_topic() -> None:
    sizes = ["--megabytes", "20", "--small-megabytes", "10"]
    result = subprocess.run(
        [sys.executable, "-m", "bench", "--topics", "b256_gzip", *sizes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert {"MirrorMaker 2, tuned", "confluent-kafka loop", "floor"} <= {
        cell.strip() for line in result.stdout.splitlines() for cell in line.split("|")
    }


@pytest.mark.long
def test_down_conversion_is_measured_lazily_and_eagerly() -> None:
    sizes = ["--consumers", "3", "--fetch-megabytes", "1"]
    times = ["--seconds", "2", "--eager-seconds", "10", "--sweep-seconds", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "bench.gateway", *sizes, *times],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    measured = {tuple(cell.strip() for cell in line.split("|")[1:4]) for line in result.stdout.splitlines()}
    for server in ("gateway", "embedded broker"):
        for consumers in ("1", "3"):
            assert {(server, "lazy, 16 KiB", consumers), (server, "eager", consumers)} <= measured


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
