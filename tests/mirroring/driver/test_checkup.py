"""The warnings of a dry run about clusters that answer: certificates that expire soon, and clocks."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig.authority import Authority
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.security import Security
from shoal.client.security.tls import TlsSettings
from shoal.gateway import Gateway, GatewaySettings, TlsFiles
from shoal.mirroring.driver.checkup import cluster_warnings
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import Api, BrokerState
from tests.archive.archives import add, new_archive, objects_of, plain
from tests.world.clusters import config_of

HOUR_MS = 3_600_000
_Response = response_class(ApiKey.DESCRIBE_QUORUM)
_Topic = _Response.TopicData
_Partition = _Topic.PartitionData


def with_quorum(broker: Broker, ahead_ms: float, *, error_code: int = 0, leader: int = 3) -> None:
    """Let a broker describe a quorum of two, whose leader's clock is ahead of ours."""

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        now_ms = int(time.time() * 1000 + ahead_ms)
        voters = [
            _Partition.ReplicaState(
                replica_id=node,
                log_end_offset=7,
                last_fetch_timestamp=now_ms if node == 3 else 1,
                last_caught_up_timestamp=now_ms if node == 3 else 1,
            )
            for node in (2, 3)
        ]
        partition = _Partition(
            partition_index=0,
            error_code=error_code,
            leader_id=leader,
            leader_epoch=1,
            high_watermark=7,
            current_voters=voters,
            observers=[],
        )
        topic = _Topic(topic_name="__cluster_metadata", partitions=[partition])
        return _Response(version=call.version, error_code=0, topics=[topic])

    broker.apis = {**broker.apis, ApiKey.DESCRIBE_QUORUM: Api(ApiKey.DESCRIBE_QUORUM, 0, 1, handle)}


def warnings_of(config: ClientConfig) -> list[str]:
    with Cluster(config) as cluster:
        return list(cluster_warnings(cluster))


@pytest.mark.parametrize(("ahead_ms", "side"), [(HOUR_MS, "ahead"), (-HOUR_MS, "behind")])
def test_clock_of_the_controller_that_differs_by_an_hour_is_a_warning(
    broker: Broker, ahead_ms: int, side: str
) -> None:
    with_quorum(broker, ahead_ms)
    (warning,) = warnings_of(config_of("destination", broker))
    assert re.search(rf"clock.*destination.*\b3,?[56]\d\d(\.\d+)? s {side}\b", warning)


def test_clock_that_differs_by_seconds_is_none(broker: Broker) -> None:
    with_quorum(broker, 10_000)
    assert warnings_of(config_of("destination", broker)) == []


def test_clock_that_the_cluster_does_not_show_is_none(broker: Broker) -> None:
    assert warnings_of(config_of("destination", broker)) == []  # without the API
    with_quorum(broker, HOUR_MS, error_code=31)
    assert warnings_of(config_of("destination", broker)) == []  # without the ACL
    with_quorum(broker, HOUR_MS, leader=9)
    assert warnings_of(config_of("destination", broker)) == []  # without a leader


def test_bootstrap_server_without_an_answer_is_a_warning_if_another_one_answers(broker: Broker) -> None:
    config = config_of("source", broker)
    silent = Address("127.0.0.1", 1)
    (warning,) = warnings_of(replace(config, bootstrap=(*config.bootstrap, silent)))
    assert str(silent) in warning
    assert warnings_of(replace(config, bootstrap=(silent,))) == []  # the error of the command says so


@pytest.mark.parametrize("days", [1, 30])
def test_certificate_that_expires_within_two_weeks_is_a_warning(
    broker: Broker, tmp_path: Path, days: int
) -> None:
    authority = Authority()
    identity = authority.issue("gateway", "127.0.0.1", days=days)
    files = TlsFiles(tmp_path / "gateway.pem", tmp_path / "gateway.key")
    files.certificates.write_text(identity.chain_pem)
    files.private_key.write_text(identity.key_pem())
    gateway = Gateway(GatewaySettings("127.0.0.1", 0, config_of("upstream", broker), tls=files))
    gateway.start()
    try:
        config = replace(
            config_of("source", broker),
            bootstrap=(gateway.bootstrap,),
            security=Security(tls=TlsSettings(trusted=authority.pem)),
        )
        warnings = warnings_of(config)
    finally:
        gateway.stop()
    expiring = [each for each in warnings if "expires on" in each]
    assert len(expiring) == (1 if days < 14 else 0)
    assert all(str(gateway.bootstrap) in each for each in expiring)


def test_files_of_an_archive_that_do_not_count_are_a_warning(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a", partitions=2)
    add(archive, plain(3), tmp_path)
    config = ClientConfig.given("source", str(tmp_path / "a"), None)
    assert warnings_of(config) == []
    left = f"{objects_of(archive, 1).path}/00000000000000000003.2-1.log"
    archive.store.write(left, plain(1, base_offset=3))
    (warning,) = warnings_of(config)
    assert left in warning


def test_archive_that_is_not_there_yet_has_no_warnings(tmp_path: Path) -> None:
    assert warnings_of(ClientConfig.given("destination", str(tmp_path / "a"), None)) == []
