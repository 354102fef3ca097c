"""Kafka 3.9.1 passes the tests of what the embedded broker does in versions that Kafka 4 has removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig import KafkaCluster
from rig.jars import KAFKA_3_VERSION

_ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_real_broker_of_3_9_answers_old_versions_the_same() -> None:
    """Those of the tests that look into the embedded broker, or differ from Kafka, skip themselves."""
    with KafkaCluster(version=KAFKA_3_VERSION) as kafka:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/broker/apis/test_old_versions.py"],
            cwd=_ROOT,
            env={**os.environ, "SHOAL_TEST_BROKER": kafka.bootstrap},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-10_000:]
