"""The floor: receive the same bytes from the source broker and send them on, with no work at all.

An unmeasured rehearsal fetches the topic and records every Fetch request. The floor sends exactly these
requests and receives each response into one reused buffer. It sends as many bytes over loopback to a sink, a
process that reads them into a buffer and answers four bytes. The next request is in flight while the floor
sends a response on. The floor decodes nothing. If a mover in Python goes through user space, it can cost less
only by larger or fewer system calls. It has no copy, and so it counts by itself, from half of the
responses to the last.
"""

import argparse
import contextlib
import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka.protocol.consumer import FetchRequest
from kafka.record.memory_records import MemoryRecords

from bench.measure import end_offsets
from bench.mover import Command, Job
from rig import wait_until
from rig.process import spawn

__all__ = ["Floor"]

PARTITION_MAX_BYTES = 1024 * 1024  # the default of Kafka's own consumer
MAX_BYTES = 16 * 1024 * 1024

_SIZE = struct.Struct(">i")


class Floor:
    """The mover without a destination broker."""

    name = "floor"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        requests = job.directory / "requests"
        requests.write_bytes(b"".join(rehearse(job.source, job.topic)))
        with _sink(job.directory) as sink_port:
            arguments = [
                sys.executable,
                "-m",
                "bench.floor",
                "move",
                job.source,
                str(sink_port),
                str(requests),
                str(job.own_window),
            ]
            yield Command(arguments, copy=None)


def rehearse(source: str, topic: str) -> list[bytes]:
    """Read a topic to its end and return every Fetch request sent, framed.

    The log does not change, so the same requests get the same responses again.
    """
    ends = dict(enumerate(end_offsets(source, topic)))
    positions = dict.fromkeys(ends, 0)
    sent: list[bytes] = []
    with _connect(source) as connection:
        while any(positions[p] < end for p, end in ends.items()):
            request = _fetch(topic, {p: offset for p, offset in positions.items() if offset < ends[p]})
            sent.append(bytes(request.encode(header=True, framed=True)))
            connection.sendall(sent[-1])
            (size,) = _SIZE.unpack(_receive(connection, _SIZE.size))
            response_class = request.header.get_response_class()
            response = response_class.decode(_receive(connection, size), header=True)
            for partition in response.responses[0].partitions:
                positions[partition.partition_index] = _next_offset(
                    partition, positions[partition.partition_index]
                )
    return sent


def _fetch(topic: str, positions: dict[int, int]) -> Any:
    topic_class = FetchRequest.FetchTopic
    partitions = [
        topic_class.FetchPartition(
            version=12, partition=p, fetch_offset=offset, partition_max_bytes=PARTITION_MAX_BYTES
        )
        for p, offset in positions.items()
    ]
    request = FetchRequest(
        version=12,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        topics=[topic_class(version=12, topic=topic, partitions=partitions)],
    )
    request.with_header(correlation_id=1, client_id="floor")
    return request


def _next_offset(partition: Any, position: int) -> int:
    """Return the offset after the last whole batch; if there is none, the old position."""
    assert partition.error_code == 0, partition.error_code
    records = MemoryRecords(bytes(partition.records))
    while (batch := records.next_batch()) is not None:
        position = batch.next_offset
    return position


def move(source: str, sink_port: int, requests: Path, own_window: Path) -> None:
    """Run the floor: the measured process."""
    frames = _frames(requests.read_bytes())
    view = memoryview(bytearray(2 * MAX_BYTES))
    ack = bytearray(4)
    moved = 0
    begin = 0, 0.0, 0.0
    with _connect(source) as broker, _connect(f"127.0.0.1:{sink_port}") as sink:
        broker.sendall(frames[0])
        for number, following in enumerate([*frames[1:], None]):
            if number == len(frames) // 2:
                begin = moved, time.process_time(), time.monotonic()
            size = _SIZE.unpack(_receive(broker, _SIZE.size))[0]
            broker.recv_into(view, size, socket.MSG_WAITALL)
            if following is not None:
                broker.sendall(following)
            sink.sendall(_SIZE.pack(size))
            sink.sendall(view[:size])
            sink.recv_into(ack, 4, socket.MSG_WAITALL)
            moved += size
    cpu_s = time.process_time() - begin[1]
    window = {
        "part": (moved - begin[0]) / moved,
        "seconds": time.monotonic() - begin[2],
        "cpu_s": cpu_s,
    }
    own_window.write_text(json.dumps(window))


def drain(port_file: Path) -> None:
    """Run the sink: read frames, answer each with four bytes, end with the connection."""
    view = memoryview(bytearray(2 * MAX_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port_file.write_text(f"{server.getsockname()[1]}\n")
        connection, _ = server.accept()
        with connection:
            while connection.recv_into(view, _SIZE.size, socket.MSG_WAITALL) == _SIZE.size:
                connection.recv_into(view, _SIZE.unpack_from(view)[0], socket.MSG_WAITALL)
                connection.sendall(b"done")


@contextmanager
def _sink(directory: Path) -> Iterator[int]:
    port_file = directory / "sink.port"
    process = spawn([sys.executable, "-m", "bench.floor", "drain", port_file], directory / "sink.log")
    try:
        wait_until(lambda: port_file.exists() and port_file.read_text().endswith("\n"), "the sink's port")
        yield int(port_file.read_text())
    finally:
        process.kill()
        process.wait()


def _connect(address: str) -> socket.socket:
    host, port = address.split(",")[0].split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection: socket.socket, size: int) -> bytes:
    received = connection.recv(size, socket.MSG_WAITALL)
    if len(received) < size:
        raise ConnectionError(f"closed after {len(received)} of {size} bytes")
    return received


def _frames(data: bytes) -> list[bytes]:
    frames = []
    position = 0
    while position < len(data):
        end = position + _SIZE.size + _SIZE.unpack_from(data, position)[0]
        frames.append(data[position:end])
        position = end
    return frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    mover = roles.add_parser("move")
    mover.add_argument("source")
    mover.add_argument("sink_port", type=int)
    mover.add_argument("requests", type=Path)
    mover.add_argument("own_window", type=Path)
    roles.add_parser("drain").add_argument("port_file", type=Path)
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        if arguments.role == "move":
            move(arguments.source, arguments.sink_port, arguments.requests, arguments.own_window)
        else:
            drain(arguments.port_file)


if __name__ == "__main__":
    main()
