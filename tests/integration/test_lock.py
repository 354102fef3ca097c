"""The group of a mirror on a real cluster: errors name the process that holds it now."""

import pytest

from rig import KafkaCluster
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.groups import describe_holder
from shoal.mirroring.driver import group_lock as lock
from shoal.mirroring.driver.group_lock import GroupLock


def test_group_is_held_after_taking_over_from_a_dead_process(
    source_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's coordinator keeps the first process's client id for the member (KIP-345)."""
    config, _ = ClientConfig.from_properties("source", {"bootstrap.servers": source_cluster.bootstrap})
    monkeypatch.setattr(lock, "this_process", lambda: "shoal process 1 on there")
    dead = GroupLock(config, "mirror.lock", "name", lambda *renewed: None)
    dead.acquire([], patience_s=60.0)
    ours = "shoal process 2 on here"
    monkeypatch.setattr(lock, "this_process", lambda: ours)
    with GroupLock(config, "mirror.lock", "name", lambda *renewed: None) as again:
        again.acquire([], patience_s=60.0)
        with Cluster(config) as cluster:
            assert describe_holder(cluster, "mirror.lock") == ours
    dead.release()
