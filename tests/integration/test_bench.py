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
