"""The benchmark runs, on topics too small for meaningful numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.account import group_parent

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(group_parent() is None, reason="the bench needs control groups"),
]


def run_bench(*arguments: str) -> list[list[str]]:
    """Return the cells of the printed tables."""
    result = subprocess.run(
        [sys.executable, "-m", "bench", "--scale", "0.02", "--repeat", "1", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [[cell.strip() for cell in line.split("|")] for line in result.stdout.splitlines()]


@pytest.mark.timeout(2400)
def test_every_row_is_measured_with_every_peer() -> None:
    subjects = {row[1]: row for row in run_bench() if len(row) > 2}
    assert {"MirrorMaker 2, tuned", "confluent-kafka loop", "shoal, pure Python"} <= subjects.keys()
    assert {"the source's own consumer", "shoal cutover"} <= subjects.keys()
    # 50,000 records in batches of 256 over 4 partitions; if the codec differs, the broker converts all.
    for topic, conversions in {"b256_lz4": "0", "b256_lz4_to_gzip": "50,000"}.items():
        whole = subjects[f"{topic}: shoal mirror-maker --use.raw.bytes"]
        assert float(whole[2]) > 0, "CPU-s/GB"
        assert whole[-2] == conversions


@pytest.mark.timeout(900)
def test_other_commit_is_compared_with_this_one() -> None:
    subjects = {
        row[1] for row in run_bench("--before", "HEAD", "--rows", "b16_lz4", "verify") if len(row) > 2
    }
    assert {"shoal, before", "shoal, pure Python", "b16_lz4, before", "b16_lz4, pure Python"} <= subjects
