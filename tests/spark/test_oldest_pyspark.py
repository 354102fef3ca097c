"""The oldest PySpark that has Python data sources, installed as a user would, mirrors too."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

import shoal
from tests.hasty import hasty
from tests.spark.mirror_command import (
    RECORDS,
    TIMEOUT_S,
    Mirror,
    assert_copied,
    brokers_with_orders,
    copied,
    load,
)
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until

#: Longer than the tests' own waits, on a busy machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

OLDEST = "4.0"
REPOSITORY = Path(shoal.__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A separate environment with shoal and its dependencies: 40 s, and half of that the second time."""
    environment = tmp_path_factory.mktemp("oldest")
    python = str(environment / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--editable", str(REPOSITORY), f"pyspark=={OLDEST}.*"),
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
    yield python
    rmtree(environment)


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with brokers_with_orders() as started:
        yield started


def test_environment_has_the_oldest_pyspark(python: str) -> None:
    said = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(f"{OLDEST}.")


def test_mirror_once_with_the_oldest_pyspark_copies_all(
    python: str, brokers: TwoBrokers, tmp_path: Path
) -> None:
    with Mirror(brokers, tmp_path, "--once", python=python) as mirror:
        code, err, summary = mirror.result()
    assert (code, err, summary["records"]) == (0, "", RECORDS)
    assert_copied(brokers, RECORDS)


def test_running_mirror_with_the_oldest_pyspark_resumes_after_a_restart(
    python: str, brokers: TwoBrokers, tmp_path: Path
) -> None:
    """Spark does not pass the end of its log to this PySpark's reader."""
    for records in (RECORDS, 2 * RECORDS):
        with Mirror(brokers, tmp_path, python=python, program=hasty(places_look_s=2.0)) as mirror:
            wait_until(lambda wanted=records: copied(brokers) == wanted, TIMEOUT_S)  # type: ignore[misc]
            mirror.send_signal(signal.SIGTERM)
            code, err, _ = mirror.result()
        assert (code, err) == (0, "")
        assert_copied(brokers, records)
        load(brokers)
