"""Produce requests that a test controls: any batches, any acks, any client id, any version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rig import KafkaCluster
from shoal.client.connection import Connection
from shoal.client.security import Security
from shoal.net.address import Address, parse_bootstrap
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import ProduceOutcome, decode_produce_response, encode_produce_request
from shoal.protocol.topic_ids import TOPIC_IDS_FROM
from shoal.records import Codec, read_header, split
from tests.batches import batch

__all__ = [
    "ALL_CODECS",
    "MARKED",
    "PRODUCER_ID",
    "Identity",
    "RawProducer",
    "following",
    "records_in",
    "stored",
]

MARKED = "shoal-multi-batch.test"
"""A client id with the agent's default prefix."""

PRODUCER_ID = 4_000_000
"""An id that no coordinator assigns: they begin at 0."""

SEQUENCES = 2**31
_TIMEOUT_MS = 30_000
ALL_CODECS = (Codec.LZ4, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD)


@dataclass(frozen=True, slots=True)
class Identity:
    """A partition's producer."""

    producer_id: int = PRODUCER_ID
    producer_epoch: int = 0

    def batch(self, sequence: int, records: int = 3, codec: Codec = Codec.LZ4, flags: int = 0) -> bytearray:
        """Build a batch; its values are different for each sequence."""
        values = [b"value %d %d " % (sequence, number) * 4 for number in range(records)]
        return batch(
            values,
            codec=codec,
            flags=flags,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence % SEQUENCES,
            leader_epoch=-1,
        )


def following(
    sequence: int,
    count: int,
    *,
    records: int = 3,
    codecs: Sequence[Codec] = (Codec.LZ4,),
    identity: Identity | None = None,
) -> list[bytearray]:
    """Build batches whose sequences have no gap; the codecs take turns."""
    whose = identity or Identity()
    return [
        whose.batch(sequence + number * records, records, codecs[number % len(codecs)])
        for number in range(count)
    ]


class RawProducer:
    """A connection to the partitions' leader, and Produce requests on it."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = MARKED,
        version: int | None = None,
        security: Security | None = None,
    ) -> None:
        """Connect.

        Args:
            bootstrap: Address of one broker.
            client_id: By default one that the agent recognises as marked.
            version: Version of Produce, 7 to 12; by default the newest that lists topics by name.
            security: For a listener other than PLAINTEXT.
        """
        (address,) = parse_bootstrap(bootstrap)
        self.connection = Connection(address, client_id=client_id, timeout_s=60, security=security)
        newest = self.connection.version(ApiKey.PRODUCE)
        self.version = version or min(newest, TOPIC_IDS_FROM - 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    @property
    def address(self) -> Address:
        return self.connection.address

    def send(
        self, topic: str, batches: Sequence[bytes | bytearray], *, partition: int = 0, acks: int = -1
    ) -> None:
        """Send one request for one partition."""
        self.send_to_partitions(topic, {partition: batches}, acks=acks)

    def send_to_partitions(
        self, topic: str, batches: Mapping[int, Sequence[bytes | bytearray]], *, acks: int = -1
    ) -> None:
        """Send one request for several partitions of a topic."""
        correlation_id = self.connection.next_correlation_id()
        parts = encode_produce_request(
            {topic: [(number, [memoryview(each) for each in those]) for number, those in batches.items()]},
            version=self.version,
            correlation_id=correlation_id,
            client_id=self.connection.client_id,
            acks=acks,
            timeout_ms=_TIMEOUT_MS,
        )
        if acks == 0:  # no response comes
            with self.connection.lend([0, 0]) as sock:
                sock.sendall(b"".join(parts))
        else:
            self.connection.send_parts(parts, ApiKey.PRODUCE, correlation_id)

    def receive(self) -> ProduceOutcome:
        """Wait for the response to the oldest request."""
        (outcome,) = decode_produce_response(self.connection.receive(), self.version)
        return outcome

    def produce(
        self, topic: str, batches: Sequence[bytes | bytearray], *, partition: int = 0, acks: int = -1
    ) -> ProduceOutcome:
        """Send one request for one partition, and wait for its response."""
        self.send(topic, batches, partition=partition, acks=acks)
        return self.receive()

    def accepted(self, topic: str, batches: Sequence[bytes | bytearray], *, partition: int = 0) -> int:
        """Produce batches that must be accepted; return the offset of the first batch."""
        outcome = self.produce(topic, batches, partition=partition)
        assert outcome.error_code == 0, outcome
        return outcome.base_offset

    def refused(self, topic: str, batches: Sequence[bytes | bytearray], *, partition: int = 0) -> int:
        """Produce batches that must be refused; return the error code."""
        outcome = self.produce(topic, batches, partition=partition)
        assert outcome.error_code != 0
        assert outcome.base_offset == -1
        return outcome.error_code


def records_in(batches: Sequence[bytes | bytearray]) -> int:
    """Return the number of records in some batches."""
    return sum(read_header(memoryview(each)).records_count for each in batches)


def stored(kafka: KafkaCluster, topic: str, node_id: int = 1) -> list[bytes]:
    """Return the batches in a partition's segment files, as they are."""
    segments = sorted(kafka.partition_dir(topic, 0, node_id).glob("*.log"))
    return [bytes(each.view) for file in segments for each in split(memoryview(file.read_bytes()))]
