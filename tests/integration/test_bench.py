"""The benchmark runs, on topics too small to mean anything."""

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
