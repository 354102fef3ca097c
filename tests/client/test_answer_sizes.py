"""How large an answer may be, by its request and by the client's properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.client.answer_sizes import AnswerSizes
from shoal.client.config import ClientConfig
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import ValueLimit, decode_response, encode_response, response_class

KIB = 1024
MIB = 1024 * KIB


def config(**properties: str) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    found, warnings = ClientConfig.from_properties("source", {"bootstrap.servers": "a:1", **named})
    assert warnings == []
    return found


def test_properties_set_bounds() -> None:
    found = config(shoal_max_answer_bytes="33554432", shoal_max_batch_bytes="209715200")
    assert found.answer_sizes == AnswerSizes(answer_bytes=32 * MIB, batch_bytes=200 * MIB)
    assert config().answer_sizes == AnswerSizes()


@pytest.mark.parametrize("value", ["0", "-1", "16m", ""])
def test_invalid_bound_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=rf"shoal.max.answer.bytes={value}.*1"):
        config(shoal_max_answer_bytes=value)


def metadata(version: int, topics: int) -> Any:
    """The metadata of topics with one partition, five replicas and the longest of names."""
    response = response_class(ApiKey.METADATA)
    topic = response.MetadataResponseTopic
    nodes = [1, 2, 3, 4, 5]
    partition = topic.MetadataResponsePartition(
        version=version,
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=7,
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=[],
    )
    listed = [
        topic(version=version, error_code=0, name=f"{number:0249}", partitions=[partition])
        for number in range(topics)
    ]
    return response(version=version, brokers=[], topics=listed)


def configs(version: int, topics: int) -> Any:
    """The settings of topics with the longest of names: as many, and as long, as those of Kafka 4.1."""
    response = response_class(ApiKey.DESCRIBE_CONFIGS)
    result = response.DescribeConfigsResult
    setting = result.DescribeConfigsResourceResult(
        version=version,
        name="leader.replication.throttled",
        value="9223372036854",
        read_only=False,
        config_source=5,
        is_sensitive=False,
        synonyms=[],
        config_type=5,
        documentation=None,
    )
    described = [
        result(version=version, resource_type=2, resource_name=f"{number:0249}", configs=[setting] * 33)
        for number in range(topics)
    ]
    return response(version=version, results=described)


@pytest.mark.parametrize(
    ("api_key", "version", "answer", "topics"),
    [
        (ApiKey.METADATA, 1, metadata, 200_000),
        (ApiKey.METADATA, 12, metadata, 200_000),
        (ApiKey.DESCRIBE_CONFIGS, 1, configs, 20_000),
        (ApiKey.DESCRIBE_CONFIGS, 4, configs, 20_000),
    ],
)
def test_responses_of_a_cluster_with_200_000_partitions_are_within_the_bounds(
    api_key: ApiKey, version: int, answer: Callable[[int, int], Any], topics: int
) -> None:
    sample = topics // 100
    frame = encode_response(answer(version, sample), 1)[4:]
    sizes = AnswerSizes()
    assert 100 * len(frame) < sizes.largest(api_key)
    hundredth = ValueLimit(sizes.values.most // 100, "")
    decoded = decode_response(api_key, version, memoryview(frame), hundredth)
    assert len(decoded.topics if api_key is ApiKey.METADATA else decoded.results) == sample


def test_bound_of_values_grows_with_the_bytes_of_a_property() -> None:
    assert AnswerSizes(answer_bytes=MIB).values == AnswerSizes().values
    assert AnswerSizes(answer_bytes=128 * MIB).values.most == 2 * AnswerSizes().values.most
