"""Kafka 3.9.1 passes the embedded broker's tests of the versions that Kafka 4 has removed."""

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
def test_kafka_3_9_answers_old_versions_alike() -> None:
    """If a test inspects the embedded broker, or its behaviour differs from Kafka's, it skips itself."""
    with KafkaCluster(version=KAFKA_3_VERSION) as kafka:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/broker/apis/old_versions"],
            cwd=_ROOT,
            env={**os.environ, "SHOAL_TEST_BROKER": kafka.bootstrap},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-10_000:]
