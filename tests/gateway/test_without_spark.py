"""The gateway runs where neither PySpark nor pyarrow is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.shoal import Shoal
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import messages
from tests.without_spark import environment_without
from tests.world.batches import message

#: The packages that only the mirror needs, and that take nine tenths of an installation.
ABSENT = ("pyspark", "py4j", "pyarrow", "psutil")


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that cannot import these packages."""
    return environment_without(tmp_path, *ABSENT)


def test_gateway_serves_an_old_client(cluster: BrokerCluster, without_spark: dict[str, str]) -> None:
    options = ("--listen", "127.0.0.1:0", "--upstream", cluster.bootstrap)
    cluster.create_topic("without-spark", 1, {"retention.ms": "-1"})
    with Shoal("gateway", *options, environment=without_spark).serving() as process:
        with Wire(process.address) as wire:
            brokers = {each.node_id: each for each in wire.call(ApiKey.METADATA, 0, topics=[]).brokers}
        leader = brokers[cluster.leader_of("without-spark")]
        with Wire(f"{leader.host}:{leader.port}") as wire:
            sent = message(1, b"value")
            assert wire.produce("without-spark", sent, version=2).error_code == ErrorCode.NONE
            (read,) = messages(wire.fetch("without-spark", version=2).record_set)
    assert read.value == b"value"
