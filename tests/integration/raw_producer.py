"""Produce requests of a client that asks for several batches of a partition, and what a broker stores."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from rig import KafkaCluster
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, split
from tests.broker.wire import Wire, framed
from tests.world.batches import batch

__all__ = ["ALL_CODECS", "PRODUCER_ID", "RawProducer", "as_sent", "following", "stored"]

#: A client id with the agent's default prefix.
MARKED = "shoal-multi-batch.test"

#: An id that no coordinator assigns: they begin at 0.
PRODUCER_ID = 4_000_000

SEQUENCES = 2**31
ALL_CODECS = (Codec.LZ4, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD)

#: Of Produce.
_VERSION = 11


def following(
    sequence: int,
    count: int,
    *,
    records: int = 3,
    codecs: Sequence[Codec] = (Codec.LZ4,),
    producer_id: int = PRODUCER_ID,
) -> list[bytearray]:
    """Build batches whose sequences have no gap; the codecs take turns, and each value is another."""
    return [
        batch(
            [b"value %d %d " % (first, number) * 4 for number in range(records)],
            codec=codecs[turn % len(codecs)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first % SEQUENCES,
            leader_epoch=-1,
        )
        for turn, first in enumerate(range(sequence, sequence + count * records, records))
    ]


class RawProducer(Wire):
    """A connection to the leader of partition 0."""

    def __init__(
        self, bootstrap: str, *, client_id: str = MARKED, login: tuple[str, str] | None = None
    ) -> None:
        """Connect, and log in by PLAIN if a name and a password are given."""
        super().__init__(bootstrap, client_id)
        if login is not None:
            self._log_in(*login)

    def _log_in(self, user: str, password: str) -> None:
        handshake = struct.pack(">hhihh", ApiKey.SASL_HANDSHAKE, 1, 17, -1, 5) + b"PLAIN"
        token = framed(f"\0{user}\0{password}".encode())
        self.send_bytes(
            framed(handshake) + framed(struct.pack(">hhih", ApiKey.SASL_AUTHENTICATE, 0, 36, -1) + token)
        )
        for _ in range(2):
            answer = self.receive_frame()
            assert answer is not None
            assert answer[4:6] == b"\0\0", answer

    def begin(self, topic: str, batches: Sequence[bytes | bytearray], *, acks: int = -1) -> None:
        """Send a request."""
        fields = self.produce_fields([(topic, 0, b"".join(batches))], acks=acks)
        self.send(ApiKey.PRODUCE, _VERSION, **fields)

    def end(self) -> Any:
        """Wait for the response to the oldest request."""
        return self.receive(ApiKey.PRODUCE, _VERSION)

    def offer(
        self, topic: str, batches: Sequence[bytes | bytearray], *, acks: int = -1
    ) -> tuple[ErrorCode, int]:
        """Send a request, and return error code and base offset."""
        self.begin(topic, batches, acks=acks)
        return outcome_of(self.end())

    def accepted(self, topic: str, batches: Sequence[bytes | bytearray]) -> int:
        """Produce batches that must be accepted; return the offset of the first one."""
        code, base_offset = self.offer(topic, batches)
        assert code is ErrorCode.NONE, code
        return base_offset

    def refused(self, topic: str, batches: Sequence[bytes | bytearray]) -> ErrorCode:
        """Produce batches that must be refused; return the error code."""
        code, base_offset = self.offer(topic, batches)
        assert (code is not ErrorCode.NONE, base_offset) == (True, -1)
        return code


def outcome_of(response: Any) -> tuple[ErrorCode, int]:
    """Return error code and base offset of the one partition."""
    (part,) = response.responses[0].partition_responses
    return ErrorCode(part.error_code), part.base_offset


def stored(kafka: KafkaCluster, topic: str, node_id: int = 1) -> list[bytes]:
    """Return the batches in a partition's segment files, as they are."""
    segments = sorted(kafka.partition_dir(topic, 0, node_id).glob("*.log"))
    return [bytes(each.view) for file in segments for each in split(memoryview(file.read_bytes()))]


def as_sent(batches: Sequence[bytes | bytearray]) -> list[bytes]:
    """Return the bytes that a broker may not change: from the magic on."""
    return [bytes(each[16:]) for each in batches]
