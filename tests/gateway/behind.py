"""A gateway before embedded brokers with Kafka 4's versions, and requests to both."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafka.record import MemoryRecords

from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests import old_messages
from tests.broker.wire import PATIENCE_S, Wire

__all__ = [
    "Behind",
    "Message",
    "append",
    "ask",
    "free_ports",
    "gateway_before",
    "messages",
    "old_request",
    "read_all",
    "served",
    "upstream",
    "wait_until",
]

_numbers = itertools.count()


class Behind(NamedTuple):
    """A gateway and the cluster behind it."""

    gateway: Gateway
    cluster: BrokerCluster

    def address(self, topic: str | None = None, partition: int = 0) -> str:
        """Return the gateway's address for bootstrap, or for a partition's leader."""
        if topic is None:
            return str(self.gateway.bootstrap)
        return str(self.gateway.brokers[self.cluster.leader_of(topic, partition)])

    def direct(self, topic: str, partition: int = 0) -> str:
        """Return the address of the leader itself."""
        return str(self.cluster.node(self.cluster.leader_of(topic, partition)).bootstrap)

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        name = f"topic-{next(_numbers)}"
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.cluster.create_topic(name, partitions, {"retention.ms": "-1", **named})
        return name


def upstream(cluster: BrokerCluster, **properties: str) -> ClientConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClientConfig.from_properties("upstream", {"bootstrap.servers": cluster.bootstrap, **named})[0]


@contextmanager
def gateway_before(
    cluster: BrokerCluster, config: ClientConfig | None = None, *, port: int = 0, **settings: Any
) -> Iterator[Behind]:
    """Run a gateway, by default on free ports."""
    with Gateway(GatewaySettings("127.0.0.1", port, config or upstream(cluster), **settings)) as running:
        yield Behind(running, cluster)


class Message(NamedTuple):
    """A message as another library reads it from a record set."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def messages(record_set: memoryview | bytes) -> list[Message]:
    """Read a record set by kafka-python, and see that each message in it is an old one."""
    found = []
    records = MemoryRecords(bytes(record_set))
    while records.has_next():
        batch = records.next_batch()
        assert type(batch).__name__ == "LegacyRecordBatch"
        found += [Message(each.offset, each.timestamp, each.key, each.value) for each in batch]
    return found


def read_all(wire: Wire, topic: str, version: int, *, count: int, offset: int = 0) -> list[Message]:
    """Read like a client, fetch by fetch: a message cut by one response is fetched again."""
    found: list[Message] = []
    while len(found) < count:
        fetched = wire.fetch(topic, offset, version=version)
        assert fetched.error_code == ErrorCode.NONE
        new = [each for each in messages(fetched.record_set) if each.offset >= offset]
        assert new, f"nothing to read at {offset}"
        found += new
        offset = found[-1].offset + 1
    return found


def append(behind: Behind, topic: str, *sent: bytes | bytearray, partition: int = 0) -> None:
    """Produce batches to the leader itself, one a request."""
    with Wire(behind.direct(topic, partition)) as direct:
        for each in sent:
            assert direct.produce(topic, each, partition=partition).error_code == ErrorCode.NONE


def old_request(api: ApiKey, version: int, *fields: Any) -> bytes:
    """Encode a request by kafka-python's former classes, which were written by hand; with its size."""
    request = old_messages.schema(api, version, is_request=True)(*fields)
    encoded = old_messages.encode_request(request, 5, "old client")
    return struct.pack(">i", len(encoded)) + encoded


def ask(wire: Wire, api: ApiKey, version: int, *fields: Any) -> Any:
    """Ask by the former classes, and read the answer by them."""
    wire.send_bytes(old_request(api, version, *fields))
    frame = wire.receive_frame()
    assert frame is not None
    assert frame[:4] == struct.pack(">i", 5)
    return old_messages.schema(api, version, is_request=False).decode(frame[4:])


def free_ports(count: int) -> int:
    """Return the first of consecutive ports that are free now."""
    # Another process of the tests, which looks for some at the same time, begins elsewhere.
    begin = os.getpid() * 37
    for number in range(1000):
        first = 20_000 + (begin + number) % 1000 * 10
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def served(wire: Wire) -> dict[int, tuple[int, int]]:
    """Return the versions that ApiVersions announces."""
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
