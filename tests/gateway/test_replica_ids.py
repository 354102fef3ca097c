"""A client that pretends to be a broker is hung up on: its fetch would count as replication."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shoal.gateway.versions import served_versions
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import encode_request, request_class
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, gateway_before, old_request
from tests.world.batches import batch


def request(api: ApiKey, version: int, topic: str, replica_id: int) -> bytes:
    """Encode a request of a replica; with its size."""
    if (api, version) == (ApiKey.FETCH, 0):
        return old_request(api, version, replica_id, 0, 0, [(topic, [(0, 0, 1000)])])
    if (api, version) == (ApiKey.LIST_OFFSETS, 0):
        return old_request(api, version, replica_id, [(topic, [(0, -1, 1)])])
    fields: dict[str, Any] = {"replica_id": replica_id, "topics": []}
    if api == ApiKey.FETCH:
        fields |= {"max_wait_ms": 0, "min_bytes": 0, "forgotten_topics_data": []}
    return encode_request(request_class(api)(version=version, **fields), 5, "a broker")


def is_answered(behind: Behind, topic: str, data: bytes) -> bool:
    with Wire(behind.address(topic)) as wire:
        wire.send_bytes(data)
        return wire.receive_frame() is not None


VERSIONS = [
    *((ApiKey.FETCH, version) for version in (0, 4, 11, 12, 13)),
    *((ApiKey.LIST_OFFSETS, version) for version in (0, 1, 5, 6, 8)),
    *((ApiKey.OFFSET_FOR_LEADER_EPOCH, version) for version in (3, 4)),
]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@pytest.mark.parametrize("replica_id", [0, 2, 2**31 - 1, -3])
def test_request_with_a_replica_id_closes_the_connection(
    behind: Behind, topic: str, api: ApiKey, version: int, replica_id: int
) -> None:
    assert not is_answered(behind, topic, request(api, version, topic, replica_id))


def test_replica_id_after_a_long_client_id_and_tags_is_found(behind: Behind, topic: str) -> None:
    sent = request(ApiKey.FETCH, 12, topic, 2)[4:]
    client_id = b"x" * 32_767
    tag = b"\x01\x05\x03abc"  # one tagged field in the header
    body = sent[8 + 2 + len("a broker") + 1 :]
    data = sent[:8] + len(client_id).to_bytes(2) + client_id + tag + body
    assert not is_answered(behind, topic, len(data).to_bytes(4) + data)


def test_fetch_versions_with_the_replica_id_at_the_end_are_not_served(behind: Behind) -> None:
    assert served_versions({ApiKey.FETCH: (4, 18)}, {ApiKey.FETCH}) == {ApiKey.FETCH: (0, 14)}
    body = b"\0\xff\xff" + bytes(40)
    head = int(ApiKey.FETCH).to_bytes(2) + (15).to_bytes(2) + bytes(4)
    with Wire(behind.address()) as wire:
        wire.send_bytes(len(head + body).to_bytes(4) + head + body)
        assert wire.receive_frame() is None


def test_fetch_as_a_follower_is_refused_and_warned_of_once(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    # A gateway of its own: it warns of the same thing once a minute.
    with gateway_before(cluster) as behind, caplog.at_level(logging.WARNING, "shoal.gateway"):
        topic = behind.new_topic()
        with Wire(behind.address(topic)) as wire:
            wire.produce(topic, batch(1), version=9)
        for replica_id in range(7, 17):
            assert not is_answered(behind, topic, request(ApiKey.FETCH, 4, topic, replica_id))
    (warned,) = (each for each in caplog.messages if "replica id" in each)
    assert "FETCH" in warned
