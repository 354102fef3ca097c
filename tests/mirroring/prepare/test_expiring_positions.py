"""The warning of a start whose positions the source deletes."""

from __future__ import annotations

import re

import pytest

from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.mirroring.prepare.descriptions import warning_of_expiry
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.world.clusters import config_of
from tests.world.faults import offer


@pytest.mark.parametrize(("oldest", "newest"), [(2, 9), (2, 2), (4, 9), (0, 3)])
def test_source_that_takes_a_retention_time_is_no_warning(
    broker: Broker, cluster: Cluster, oldest: int, newest: int
) -> None:
    offer(broker, ApiKey.OFFSET_COMMIT, oldest=oldest, newest=newest)
    assert warning_of_expiry(cluster, "mirror") is None


def test_warning_of_expiry_names_the_cluster_the_group_and_the_setting(
    broker: Broker, cluster: Cluster
) -> None:
    offer(broker, ApiKey.OFFSET_COMMIT, oldest=5, newest=9)
    warning = warning_of_expiry(cluster, "mirror") or ""
    assert re.search(r"\bsource\b.*'mirror'.*\b7 days\b.*\(offsets\.retention\.minutes\)$", warning)


@pytest.mark.parametrize(
    ("minutes", "told"),
    [("1440", "1 day"), ("1", "1 minute"), ("1500", "1500 minutes"), ("20160", "14 days")],
)
def test_warning_of_expiry_has_the_retention_of_the_broker(minutes: str, told: str) -> None:
    with Broker(config={"offsets.retention.minutes": minutes}) as broker:
        offer(broker, ApiKey.OFFSET_COMMIT, oldest=5, newest=9)
        with Cluster(config_of("source", broker)) as cluster:
            assert f" {told}," in (warning_of_expiry(cluster, "mirror") or "")


def test_warning_of_expiry_has_kafka_s_default_if_no_broker_may_be_described(
    broker: Broker, cluster: Cluster
) -> None:
    offer(broker, ApiKey.OFFSET_COMMIT, oldest=5, newest=9)
    broker.config["offsets.retention.minutes"] = "1"
    broker.faults.add(ApiKey.DESCRIBE_CONFIGS, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
    warning = warning_of_expiry(cluster, "mirror") or ""
    assert re.search(r"\b7 days\b.*default of offsets\.retention\.minutes", warning)
