"""``--apis``: an API that the operator denies is neither announced nor served."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.gateway import parse_apis
from shoal.gateway.versions import API_NAMES
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import gateway_before, old_request, served


def test_denied_api_is_neither_announced_nor_served(cluster: BrokerCluster) -> None:
    with gateway_before(cluster, apis=parse_apis("all,-Produce")) as behind:
        topic = behind.new_topic()
        with Wire(behind.address(topic)) as wire:
            announced = served(wire)
            assert ApiKey.PRODUCE not in announced
            assert ApiKey.FETCH in announced
            wire.send_bytes(old_request(ApiKey.PRODUCE, 0, 1, 100, [(topic, [(0, b"")])]))
            assert wire.receive_frame() is None
        with Wire(behind.direct(topic)) as direct:
            assert direct.end_offset(topic) == 0


def test_only_allowed_apis_are_served(cluster: BrokerCluster) -> None:
    with gateway_before(cluster, apis=parse_apis("Metadata,Fetch")) as behind, Wire(behind.address()) as wire:
        assert served(wire).keys() == {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FETCH}
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        wire.send(ApiKey.LIST_GROUPS, 0)
        assert wire.receive_frame() is None


def test_list_of_apis_is_parsed() -> None:
    assert parse_apis("all") == frozenset(API_NAMES)
    assert parse_apis("Fetch, Metadata,ApiVersions") == {ApiKey.FETCH, ApiKey.METADATA}
    assert parse_apis("all,-Produce,-CreateAcls") == frozenset(API_NAMES) - {ApiKey.PRODUCE, 30}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Fetsh", "unknown API 'Fetsh'. Did you mean Fetch?"),
        ("all,-produce", "unknown API 'produce'. Did you mean Produce?"),
        ("all,-ApiVersions", "ApiVersions cannot be denied"),
        ("-Produce", "allows no API. Name some, or begin with 'all'"),
        ("", "unknown API ''"),
        ("CreateDelegationToken", "unknown API 'CreateDelegationToken'"),
    ],
)
def test_malformed_list_of_apis_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_apis(text)
    assert sentence in str(refused.value)
