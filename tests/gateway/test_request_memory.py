"""The memory of all large messages that the gateway holds whole has a bound."""

from __future__ import annotations

import gc
import re
import struct
from collections.abc import Callable, Iterator

import pytest

from shoal.error_codes import ErrorCode
from shoal.gateway.client_connection import Client, ClientRequest
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, gateway_before, wait_until
from tests.world.batches import message

Connect = Callable[[str], Wire]

MIB = 1024 * 1024
BUDGET = 3 * MIB


@pytest.fixture
def limited(cluster: BrokerCluster) -> Iterator[Behind]:
    with gateway_before(cluster, bytes_in_flight=BUDGET, largest_request_bytes=MIB) as behind:
        yield behind


@pytest.fixture
def impatient(cluster: BrokerCluster) -> Iterator[Behind]:
    """The same, and a request waits for the memory of a slow client for a part of a second."""
    timing = Timing(memory_patience_s=0.2)
    with gateway_before(cluster, bytes_in_flight=BUDGET, largest_request_bytes=MIB, timing=timing) as behind:
        yield behind


def half_sent(behind: Behind, connect: Connect, topic: str) -> Wire:
    """Send a Produce request of a MiB but for its last byte."""
    fields = struct.pack(">hhih", 0, 2, 1, -1) + struct.pack(">hi", -1, 30_000)
    fields += struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">ii", 1, 0)
    records = MIB - len(fields) - 4
    wire = connect(behind.address(topic))
    wire.send_bytes(struct.pack(">i", MIB) + fields + struct.pack(">i", records) + bytes(records - 1))
    return wire


def held_bytes() -> int:
    gc.collect()
    return sum(len(each.head) for each in gc.get_objects() if type(each) is ClientRequest)


def test_half_sent_requests_stay_in_the_budget_and_small_ones_are_served(
    limited: Behind, connect: Connect
) -> None:
    topic = limited.new_topic()
    for _ in range(5):
        half_sent(limited, connect, topic)
    budget = limited.gateway.memory
    wait_until(lambda: (budget.held, budget.waiting) == (3, 2), "they take another share")
    wait_until(lambda: held_bytes() >= BUDGET - 3, "the first are not received")
    with Wire(limited.address(topic)) as small:
        assert small.produce(topic, message(1, b"small"), version=2).error_code == ErrorCode.NONE
    assert held_bytes() < BUDGET + MIB // 2


def test_large_request_is_served_while_half_sent_ones_hold_the_budget(
    impatient: Behind, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    topic = impatient.new_topic()
    budget = impatient.gateway.memory
    oldest = half_sent(impatient, connect, topic)
    wait_until(lambda: budget.held == 1, "it takes no memory")
    for _ in range(2):
        half_sent(impatient, connect, topic)
    wait_until(lambda: budget.held == 3, "they take no memory")
    with Wire(impatient.address(topic)) as honest:
        produced = honest.produce(topic, message(1, bytes(500_000)), version=2)
        assert produced.error_code == ErrorCode.NONE
        wait_until(lambda: budget.held == 2, "its memory is not given back")
    assert oldest.receive_frame() is None
    assert re.search(r"127\.0\.0\.1.*too slowly.*--max-bytes-in-flight", caplog.text)


def test_memory_of_a_request_is_free_before_its_answer_is_sent(
    limited: Behind, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_sending: list[tuple[int, int]] = []

    def send(client: Client, data: bytes) -> None:
        at_sending.append((limited.gateway.memory.held, held_bytes()))
        original(client, data)

    original = Client.send
    monkeypatch.setattr(Client, "send", send)
    topic = limited.new_topic()
    wire = connect(limited.address(topic))
    assert wire.produce(topic, message(1, bytes(500_000)), version=2).error_code == ErrorCode.NONE
    assert at_sending == [(0, 0)]


def test_large_message_is_refused_if_no_memory_becomes_free(
    impatient: Behind, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    topic = impatient.new_topic()
    with impatient.gateway.memory.share("all of it", BUDGET), Wire(impatient.address(topic)) as wire:
        wire.send(ApiKey.PRODUCE, 2, **wire.produce_fields([(topic, 0, message(1, bytes(500_000)))]))
        assert wire.receive_frame() is None
    assert re.search(r"127\.0\.0\.1.*500...*no memory.*--max-bytes-in-flight", caplog.text)
