"""Lots for the senders, native and in Python, and a destination that may lie."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shoal.native import LotRow
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import decode_produce_request
from shoal.records import ENTRY, split, stamp_plain
from tests.world.batches import batch

__all__ = ["NEVER", "Destination", "Hangup", "lot", "served"]

#: A gate that stays open: the end of 64-bit time.
NEVER = 2**64 - 1

PRODUCER_ID = 9


def lot(
    partition: int = 0,
    batches: int = 8,
    *,
    topic: int = 0,
    base_offset: int = 0,
    newest_ms: int | None = None,
    times_ms: Sequence[int] | None = None,
    together_bytes: int = 0,
    values: Sequence[bytes] | int = 2,
    ends_of_buffers: Sequence[int] = (),
) -> LotRow:
    """Stamp batches of 2 records each, for a place in the destination's log; cut them at these positions."""
    times = times_ms or [1_600_000_000_000] * batches
    built = (batch(values, base_offset=2 * at, base_timestamp=time) for at, time in enumerate(times))
    record_set = memoryview(bytearray().join(built))
    _, _, entries = stamp_plain(
        record_set,
        0,
        first_offset=0,
        end_offset=2**62,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=base_offset,
        transactional=False,
        append_time=False,
    )
    assert len(entries) == len(times) * ENTRY.size
    cuts = [0, *ends_of_buffers, len(record_set)]
    buffers = [record_set[start:end] for start, end in itertools.pairwise(cuts)]
    return LotRow(topic, partition, buffers, entries, base_offset, newest_ms, together_bytes, False)


class Hangup(Exception):
    """Ends a destination's connection."""


@dataclass
class Destination:
    """
    Appends all it gets, and answers each request.

    Attributes:
        lie: Maps the number of a request and its answer, size included, to the bytes to send.
        other: Answers a request of another API than Produce.
        requests: For each request its batches, by partition.
        ends: The log ends.

    """

    lie: Callable[[int, bytes], bytes] = lambda number, answer: answer
    other: Callable[[bytes], bytes] = lambda frame: b""
    requests: list[dict[tuple[str, int], int]] = field(default_factory=list)
    ends: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(Hangup, OSError), connection, connection.makefile("rb") as stream:
            numbers = itertools.count()
            while len(size := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(size))
                if len(frame) < int.from_bytes(size):
                    return
                if int.from_bytes(frame[:2]) == ApiKey.PRODUCE:
                    connection.sendall(self.lie(next(numbers), self.answer(frame)))
                else:
                    connection.sendall(self.other(frame))

    def answer(self, frame: bytes) -> bytes:
        """Append a request's batches, and answer in Kafka's v12."""
        topics: defaultdict[str, list[bytes]] = defaultdict(list)
        counts = {}
        for each in decode_produce_request(memoryview(frame), 12).partitions:
            place = (each.topic, each.partition)
            found = list(split(each.record_set))
            counts[place] = len(found)
            fields = struct.pack(">ihqqq3s", each.partition, 0, self.ends[place], -1, 0, b"\1\0\0")
            topics[each.topic].append(fields)
            self.ends[place] += sum(batch.header.records_count for batch in found)
        self.requests.append(counts)
        body = frame[4:8] + b"\0" + bytes([len(topics) + 1])
        for topic, partitions in topics.items():
            body += bytes([len(topic) + 1]) + topic.encode() + bytes([len(partitions) + 1])
            body += b"".join(partitions) + b"\0"
        body += b"\0\0\0\0\0"
        return struct.pack(">i", len(body)) + body


@contextlib.contextmanager
def served(destination: Destination) -> Iterator[socket.socket]:
    """Connect to a destination, which ends with the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    serving = threading.Thread(target=destination.serve, args=[theirs])
    serving.start()
    try:
        with client:
            yield client
    finally:
        serving.join()
