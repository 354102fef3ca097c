"""A sample of the trials between real clusters: verify reports each fault, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig import KafkaCluster
from tests.nights import night_seeds
from tests.verify.campaign.clusters import TOOLS, run_between_clusters

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def test_verify_of_copies_by_other_tools_reports_each_fault_and_nothing_else(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, tmp_path: Path
) -> None:
    seeds = night_seeds(2 * len(TOOLS))
    trials = list(run_between_clusters(source_cluster, destination_cluster, seeds, tmp_path))
    assert len(trials) == len(seeds)
    assert [f"{each.complaint()}: {each.details}" for each in trials if each.complaint()] == []
