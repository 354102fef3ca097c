"""Brokers that die and come back while a mirror runs: leaders move, or are gone for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig import KafkaCluster
from rig.load import create_topic, load_plain
from rig.read import digest_topic
from tests.integration.mirror_process import MirrorProcess

#: Longer than what it waits for itself, on a busy machine.
pytestmark = pytest.mark.timeout(900)


def test_a_mirror_finds_moved_leaders_and_waits_for_brokers_that_restart(
    source_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    load_plain(source_cluster.bootstrap, topic, "lz4", 16, 200_000_000)
    with KafkaCluster(
        brokers=3, config={"default.replication.factor": "3", "min.insync.replicas": "2"}
    ) as destination:
        create_topic(destination.bootstrap, topic, 4, replication_factor=3)
        between = ["--from", source_cluster.bootstrap, "--to", destination.bootstrap]
        with MirrorProcess(*between, "--topics", topic, "--once", state=tmp_path) as mirror:
            mirror.wait_for(lambda line: line["records"] > 0)
            # Not the first: it is the bootstrap of the rig's own checks.
            destination.kill(2)
            mirror.wait_for(lambda line: line["retries"] > 0)
            destination.start(2)
            summary = mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
        assert summary["retries"] > 0
        assert digest_topic(source_cluster.bootstrap, topic) == digest_topic(destination.bootstrap, topic)
