"""API keys, and which versions are spoken."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map

from shoal.errors import ProtocolError
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey, pick_version
from shoal.protocol.codec import request_class, response_class
from shoal.protocol.topic_ids import TOPIC_IDS_FROM
from tests.vectors import vector


def test_api_keys_equal_those_of_kio() -> None:
    theirs = {key: name.upper() for key, name in api_key_map.items()}
    # The one that only brokers send; kio leaves it out.
    theirs[27] = "WRITE_TXN_MARKERS"
    ours = {name: key.value for name, key in ApiKey.__members__.items()}
    assert ours == {theirs[number]: number for number in ours.values()}


@pytest.mark.parametrize("api_key", ApiKey)
def test_each_key_has_a_request_and_a_response(api_key: ApiKey) -> None:
    for message_class in (request_class(api_key), response_class(api_key)):
        assert api_key == message_class.API_KEY
    assert request_class(api_key).type == "request"
    assert response_class(api_key).type == "response"


@pytest.mark.parametrize("api_key", CLIENT_VERSIONS)
def test_codec_has_each_version_of_the_client(api_key: ApiKey) -> None:
    oldest, newest = CLIENT_VERSIONS[api_key]
    for message_class in (request_class(api_key), response_class(api_key)):
        assert message_class.min_version <= oldest <= newest <= message_class.max_version


def test_produce_and_fetch_end_at_version_13_with_topic_ids() -> None:
    assert CLIENT_VERSIONS[ApiKey.PRODUCE][1] == CLIENT_VERSIONS[ApiKey.FETCH][1] == TOPIC_IDS_FROM


def test_real_broker_supports_every_api_of_the_client() -> None:
    announced = {
        api["api_key"]: (api["min_version"], api["max_version"])
        for api in vector("api_versions-v3.response").fields["api_keys"]
    }
    picked = {api_key: pick_version(api_key, announced, "kafka:9092") for api_key in CLIENT_VERSIONS}
    assert all(
        announced[api_key][0] <= version <= announced[api_key][1] for api_key, version in picked.items()
    )
    assert picked[ApiKey.PRODUCE] == picked[ApiKey.FETCH] == 13


@pytest.mark.parametrize(
    ("broker", "expected"), [((4, 18), 13), ((0, 4), 4), ((4, 4), 4), ((13, 99), 13), ((0, 11), 11)]
)
def test_pick_version_returns_the_newest_common_version(broker: tuple[int, int], expected: int) -> None:
    assert pick_version(ApiKey.FETCH, {ApiKey.FETCH: broker}, "kafka:9092") == expected


@pytest.mark.parametrize("broker", [(0, 3), (14, 18)])
def test_pick_version_without_common_version_names_both_ranges(broker: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError) as caught:
        pick_version(ApiKey.FETCH, {ApiKey.FETCH: broker}, "kafka:9092")
    assert all(
        each in str(caught.value)
        for each in ("kafka:9092", "FETCH", f"{broker[0]}", f"{broker[1]}", "4", "13")
    )


def test_pick_version_of_missing_api_names_it() -> None:
    with pytest.raises(ProtocolError, match=r"kafka:9092.*INIT_PRODUCER_ID"):
        pick_version(ApiKey.INIT_PRODUCER_ID, {}, "kafka:9092")
