"""Topics and their configurations, as a cluster of thousands of topics is asked for them."""

from __future__ import annotations

from typing import Any, Self

import pytest

from shoal.client.admin import describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal_broker import Broker
from tests.two_brokers import config_of

_Response = response_class(ApiKey.DESCRIBE_CONFIGS)
_Result = _Response.DescribeConfigsResult


class Answering(Cluster):
    """Describes whatever topic it is asked for, and counts those of each request."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(config_of("source", broker))
        self.asked: list[int] = []

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def ask_anyone(self, api_key: ApiKey, **fields: Any) -> Any:
        self.asked.append(len(fields["resources"]))
        setting = _Result.DescribeConfigsResourceResult(
            name="retention.ms", value="1", read_only=False, config_source=5, is_sensitive=False, synonyms=[]
        )
        results = [
            _Result(resource_type=2, resource_name=each.resource_name, configs=[setting])
            for each in fields["resources"]
        ]
        return _Response(results=results)


def test_describe_topics_sends_500_topics_per_request(broker: Broker) -> None:
    names = [f"topic-{number}" for number in range(20_000)]
    with Answering(broker) as cluster:
        configs = describe_topic_configs(cluster, names)
        assert list(configs) == names
        assert cluster.asked == [500] * 40


def test_describe_topics_names_a_missing_topic_among_many(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match=r"configuration.*cluster"):
        describe_topic_configs(cluster, ["topic"] * 500 + ["gone"])


def test_describe_topics_of_none_sends_no_request(broker: Broker) -> None:
    with Answering(broker) as cluster:
        assert describe_topic_configs(cluster, []) == {}
        assert cluster.asked == []
