"""How large an answer may be, by its request and by the client's properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.client.answer_sizes import AnswerSizes
from shoal.client.config import ClientConfig
from shoal.errors import ConfigError
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.protocol.codec import ValueLimit, decode_response, encode_response, response_class
from shoal.records import Codec, Record, write_batch
from shoal.records.record import write_body

KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE])
def test_bound_before_login_is_small_with_any_settings(api_key: ApiKey) -> None:
    assert AnswerSizes(answer_bytes=64 * MIB).largest(api_key, 64 * KIB) == 128 * KIB


def test_bound_of_partition_apis_grows_with_the_request() -> None:
    sizes = AnswerSizes()
    assert sizes.largest(ApiKey.LIST_OFFSETS, 100) == 128 * KIB + 800
    assert sizes.largest(ApiKey.OFFSET_FETCH, 100, {"topics": [object()]}) == 128 * KIB + 100 * 2048
    assert sizes.largest(ApiKey.LIST_OFFSETS, 100 * MIB) == 64 * MIB


@pytest.mark.parametrize("fields", [{"topics": None}, {}])
@pytest.mark.parametrize("api_key", [ApiKey.OFFSET_FETCH, ApiKey.METADATA])
def test_bound_of_requests_for_everything_is_large(api_key: ApiKey, fields: dict[str, object]) -> None:
    assert AnswerSizes().largest(api_key, 40, fields) == 64 * MIB


def requests_for_little(api_key: ApiKey) -> dict[str, object]:
    """Return the fields of a request that asks for one thing, as far as its bound comes of them."""
    if api_key is ApiKey.FETCH:
        return {"max_bytes": MIB}
    return {each: [object()] for each in ("topics", "resources", "groups", "transactional_ids")}


#: Their answers grow with the cluster, or with the bytes that are asked for.
UNBOUNDED = {ApiKey.FETCH, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_ACLS}


@pytest.mark.parametrize("api_key", sorted(CLIENT_VERSIONS.keys() - UNBOUNDED))
def test_bound_of_each_api_follows_its_request(api_key: ApiKey) -> None:
    largest = AnswerSizes().largest(api_key, 200, requests_for_little(api_key))
    assert largest <= (17 * MIB if api_key in OF_GROUPS else 5 * MIB)
    allowed = AnswerSizes(answer_bytes=80 * MIB)
    raised = allowed.largest(api_key, 200, requests_for_little(api_key))
    assert raised == (128 * KIB if api_key in BEFORE_LOGIN else 80 * MIB)


BEFORE_LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}

#: The members' metadata, or a transaction's partitions, are not in the request, but in one record of the
#: coordinator.
OF_GROUPS = {
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
}


def test_every_api_has_a_bound() -> None:
    for api_key in ApiKey:
        assert 0 < AnswerSizes().largest(api_key, 40) <= 64 * MIB or api_key is ApiKey.FETCH


@pytest.mark.parametrize("version", [1, 12])
def test_metadata_of_a_topic_with_50_000_partitions_are_within_the_bound(version: int) -> None:
    described = metadata(version, 1)
    (topic,) = described.topics
    topic.partitions *= 500
    frame = encode_response(described, 1)
    assert 100 * len(frame) < AnswerSizes().largest(ApiKey.METADATA, 40, {"topics": [object()]})


def test_configs_of_one_topic_are_within_the_bound() -> None:
    frame = encode_response(configs(4, 1), 1)
    assert 10 * len(frame) < AnswerSizes().largest(ApiKey.DESCRIBE_CONFIGS, 40, {"resources": [object()]})


def test_record_errors_of_a_batch_are_within_the_bound() -> None:
    """As a compacted topic answers a batch of records without keys (LogValidator)."""
    response = response_class(ApiKey.PRODUCE)
    produced = response.TopicProduceResponse
    outcome = produced.PartitionProduceResponse
    error = "Compacted topic cannot accept message without key in topic partition orders-of-the-year-0."
    errors = [
        outcome.BatchIndexAndErrorMessage(version=9, batch_index=each, batch_index_error_message=error)
        for each in range(10_000)
    ]
    refused = outcome(version=9, index=0, error_code=87, base_offset=-1, record_errors=errors)
    frame = encode_response(
        response(version=9, responses=[produced(name="orders-of-the-year", partition_responses=[refused])]), 1
    )
    batch = write_batch([Record(0, -1, write_body(None, b""))] * 10_000, Codec.GZIP)
    assert len(frame) < AnswerSizes().largest(ApiKey.PRODUCE, len(batch.view))


def test_bound_of_fetch_is_max_bytes_or_one_batch() -> None:
    sizes = AnswerSizes()
    assert sizes.largest(ApiKey.FETCH, 100, {"max_bytes": 16 * MIB}) == (100 + 4 + 16) * MIB
    assert sizes.largest(ApiKey.FETCH, 100, {"max_bytes": 400 * MIB}) == (400 + 100 + 16) * MIB
    assert AnswerSizes(batch_bytes=2 * MIB).largest(ApiKey.FETCH, 100, {"max_bytes": 4 * MIB}) == 21 * MIB


def config(**properties: str) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    found, warnings = ClientConfig.from_properties("source", {"bootstrap.servers": "a:1", **named})
    assert warnings == []
    return found


def test_properties_set_bounds_in_driver_and_tasks() -> None:
    found = config(shoal_max_answer_bytes="33554432", shoal_max_batch_bytes="209715200")
    assert found.answer_sizes == AnswerSizes(answer_bytes=32 * MIB, batch_bytes=200 * MIB)
    assert ClientConfig.from_properties("source", found.to_properties())[0] == found
    assert config().answer_sizes == AnswerSizes()
    assert ClientConfig.from_properties("source", config().to_properties())[0] == config()


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
    assert 100 * len(frame) < sizes.largest(api_key, 40)
    hundredth = ValueLimit(sizes.values.most // 100, "")
    decoded = decode_response(api_key, version, memoryview(frame), hundredth)
    assert len(decoded.topics if api_key is ApiKey.METADATA else decoded.results) == sample


def test_bound_of_values_grows_with_the_bytes_of_a_property() -> None:
    assert AnswerSizes(answer_bytes=MIB).values == AnswerSizes().values
    assert AnswerSizes(answer_bytes=128 * MIB).values.most == 2 * AnswerSizes().values.most
