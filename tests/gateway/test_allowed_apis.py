"""``--read-only`` and ``--allow-create-topics``: an API that is denied is neither announced nor served."""

from __future__ import annotations

import struct

import pytest

from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire, framed
from tests.gateway.behind import Behind, gateway_before, old_request, served

_FOR_CLIENTS = {*range(4), *range(8, 17), 18, *range(22, 27), 28, 32, 60}


@pytest.mark.parametrize(
    "api_key", [19, 20, 21, 29, 30, 31, 33, 35, 37, 38, 42, 44, 45, 47, 49, 50, 51, 57, 61]
)
def test_api_of_administrators_closes_the_connection(behind: Behind, api_key: int) -> None:
    with Wire(behind.address()) as wire:
        wire.send_bytes(framed(struct.pack(">hhih", api_key, 0, 5, -1) + bytes(20)))
        assert wire.receive_frame() is None


def test_read_only_gateway_serves_neither_produce_nor_transactions(cluster: BrokerCluster) -> None:
    with gateway_before(cluster, read_only=True) as behind:
        topic = behind.new_topic()
        with Wire(behind.address(topic)) as wire:
            assert served(wire).keys() - {68, 69} == _FOR_CLIENTS - {0, 22, 24, 25, 26, 28}
            wire.send_bytes(old_request(ApiKey.PRODUCE, 0, 1, 100, [(topic, [(0, b"")])]))
            assert wire.receive_frame() is None
        with Wire(behind.direct(topic)) as direct:
            assert direct.end_offset(topic) == 0
