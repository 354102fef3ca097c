"""A sample of the trials between real clusters: verify reports each fault, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig import KafkaCluster
from tests.verify.cluster_campaign import ClusterCampaign

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def test_verify_of_copies_by_other_tools_reports_each_fault_and_nothing_else(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, tmp_path: Path
) -> None:
    campaign = ClusterCampaign(source_cluster, destination_cluster, tmp_path)
    found = [(trial.complaint(), trial) for trial in campaign.run(range(12))]
    assert len(found) == 12
    assert [f"{complaint}: {trial.details}" for complaint, trial in found if complaint] == []
