"""Settings of brokers can be logins: clients change them only if the operator lets them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.gateway.broker_configs import refusal
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import encode_request, read_request_header, request_class
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, gateway_before

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

VERSIONS = [
    *((ApiKey.ALTER_CONFIGS, version) for version in (0, 1, 2)),
    *((ApiKey.INCREMENTAL_ALTER_CONFIGS, version) for version in (0, 1)),
]


def resource(api: ApiKey, kind: int, name: str, setting: str = "max.message.bytes") -> Any:
    wanted = request_class(api).AlterConfigsResource
    operation = {"config_operation": 0} if api == ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
    config = wanted.AlterableConfig(name=setting, value="4321", **operation)
    return wanted(resource_type=kind, resource_name=name, configs=[config])


def alter(address: str, api: ApiKey, version: int, *resources: Any) -> list[Any]:
    with Wire(address) as wire:
        answer = wire.call(api, version, resources=list(resources), validate_only=False)
    return list(answer.responses)


def described(address: str, kind: int, name: str, setting: str) -> str:
    wanted = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[setting]
    )
    with Wire(address) as wire:
        answer = wire.call(
            ApiKey.DESCRIBE_CONFIGS,
            1,
            resources=[wanted],
            include_synonyms=False,
            include_documentation=False,
        )
    value: str = answer.results[0].configs[0].value
    return value


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_broker_setting_is_refused_and_unchanged(
    behind: Behind, topic: str, api: ApiKey, version: int
) -> None:
    node_id = str(behind.cluster.leader_of(topic, 0))
    (refused,) = alter(behind.address(topic), api, version, resource(api, BROKER, node_id, "num.partitions"))
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "--allow-broker-configs" in refused.error_message
    assert (refused.resource_type, refused.resource_name) == (BROKER, node_id)
    assert described(behind.direct(topic), BROKER, node_id, "num.partitions") == "1"


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_topic_setting_is_changed(behind: Behind, topic: str, api: ApiKey, version: int) -> None:
    (changed,) = alter(behind.address(topic), api, version, resource(api, TOPIC, topic))
    assert changed.error_code == ErrorCode.NONE
    assert described(behind.direct(topic), TOPIC, topic, "max.message.bytes") == "4321"


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_request_with_a_broker_setting_is_refused_as_a_whole(
    behind: Behind, topic: str, api: ApiKey, version: int
) -> None:
    both = [resource(api, TOPIC, topic), resource(api, BROKER, "", "message.max.bytes")]
    answers = alter(behind.address(topic), api, version, *both)
    assert [each.error_code for each in answers] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert described(behind.direct(topic), TOPIC, topic, "max.message.bytes") == "1048588"


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [(TOPIC, False), (GROUP, False), (CLIENT_METRICS, False)]
    + [(kind, True) for kind in (0, 1, BROKER, BROKER_LOGGER, 64, -1)],
)
@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_setting_is_refused_by_its_resource_type(
    api: ApiKey, version: int, kind: int, is_refused: bool
) -> None:
    request = request_class(api)(version=version, resources=[resource(api, kind, "x")], validate_only=False)
    frame = memoryview(encode_request(request, 5, "client"))[4:]
    assert (refusal(read_request_header(frame), frame) is not None) == is_refused


def test_cut_request_closes_the_connection(behind: Behind) -> None:
    with Wire(behind.address()) as wire:
        wire.send_bytes(b"\0\0\0\x10" + b"\0\x21\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0\0\0\2" + b"\4\0")
        assert wire.receive_frame() is None


def test_broker_setting_is_refused_with_one_warning_unless_allowed(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    wanted = resource(api, BROKER, "nobody", "message.max.bytes")
    with gateway_before(cluster) as behind, caplog.at_level(logging.WARNING, "shoal.gateway"):
        for _ in range(3):
            alter(behind.address(), api, 1, wanted)
    (warning,) = (each for each in caplog.messages if "--allow-broker-configs" in each)
    assert "INCREMENTAL_ALTER_CONFIGS" in warning
    with gateway_before(cluster, allow_broker_configs=True) as behind:
        (answer,) = alter(behind.address(), api, 1, wanted)
    assert answer.error_code == ErrorCode.INVALID_REQUEST  # the broker's own: topics only
