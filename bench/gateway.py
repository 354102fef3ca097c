"""The cost of down-conversion, lazy and eager: ``python -m bench.gateway --help``.

Old consumers request 50 MB each of a topic of 10:1 gzip data, all at once, through ``shoal gateway`` from a
real Kafka. The consumers are raw sockets in one separate process. They send Fetch 3, check the response
for an error, and count and discard its bytes, so that the gateway gets the cores. Then fewer consumers read
small batches, through gateways with chunks of every size.

KIP-283 replaced eager conversion, which converts a whole response before its first byte is sent. The eager
gateway is the same program with a chunk and a buffer larger than any response. It converts that chunk to
compute the response's length, without a limit on concurrent conversions.

The stated bound of lazy conversion is the memory of the idle process, plus these:

- the concurrent conversions, as many as there are cores: `BOUND_OF_CONVERSIONS`
- for each consumer its thread, a chunk, and its upstream's buffer: `BOUND_PER_CONSUMER`

MB are of bytes as consumers receive them, compressed; memory is the highest resident set (VmHWM) since their
first request. With its defaults it takes about five minutes, on an otherwise idle machine:

    python -m bench.gateway --append
"""

import argparse
import json
import math
import os
import random
import re
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from bench.chart import line_layer, svg
from bench.measure import MoverFailed
from bench.report import machine, markdown, say, versions
from rig import BENCH_JVM, KAFKA_VERSION, KafkaCluster, create_topic, wait_until
from rig.load import load_values
from rig.process import forget_peak_rss_of, peak_rss_of, spawn, tail
from shoal.cli import main as shoal_main
from shoal.net import converting
from shoal.net.budget import Budget
from shoal.records.down_conversion import DownConversion

__all__ = ["Asked", "Had", "Run", "charts", "check_answer", "sweep_table", "table"]

_RESULTS = Path(__file__).parent / "results.md"
_CHART = Path(__file__).parent / "gateway.svg"
_MEGABYTE = 1_000_000

BOUND_OF_CONVERSIONS = 8 << 20
"""Bytes; for batches of 100 KB, and the code that a process loads at its first request."""

BOUND_PER_CONSUMER = 3 << 19
"""Bytes; a gateway's buffer is 1 MiB here."""

#: More than the gateway's default, so that there is room for chunks of every size.
_BUFFER_BYTES = 1 << 20

_LAZY_CHUNK_BYTES = 16 * 1024
_EAGER_CHUNK_BYTES = 2**31 - 1
_SWEPT_KIB = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SWEEP_CONSUMERS = 10
_ALONE_S = 10.0
_ALONE_EAGERLY_S = 40.0

_TOPIC, _RECORDS_PER_BATCH = "gzip", 100
_SMALL_TOPIC, _RECORDS_PER_SMALL_BATCH = "gzip-in-small-batches", 10
_SMALL_FETCH_BYTES = 5 * _MEGABYTE

_RECORD_BYTES = 1000
#: With this many digits, gzip compresses a batch to a tenth.
_RANDOM_HEX_DIGITS = 160

_READ_BYTES = 256 * 1024


@dataclass(frozen=True)
class Asked:
    """The consumers' requests.

    Attributes:
        topic: A topic with one partition.
        consumers: Number of concurrent consumers.
        fetch_bytes: Limit of one response.
        seconds: Time after which they disconnect.
        once: Disconnect after one whole response each, if that is sooner.
    """

    topic: str
    consumers: int
    fetch_bytes: int
    seconds: float
    once: bool = False


@dataclass(frozen=True)
class Had:
    """The consumers' results.

    Attributes:
        seconds: Time from the first request to the last byte.
        received_bytes: Bytes that all consumers received.
        first_byte_s: Time from each consumer's first request to the first bytes of a message; None if it
            received none.
        responses: Number of whole responses.
    """

    seconds: float
    received_bytes: int
    first_byte_s: Sequence[float | None]
    responses: int


@dataclass(frozen=True)
class Run:
    """A gateway's results.

    Attributes:
        chunk_bytes: Chunk size of conversion.
        idle_bytes: Resident set when all consumers were connected and had sent no request.
        peak_bytes: The highest resident set since then.
        cpu_s: User and system time of the gateway.
    """

    chunk_bytes: int
    asked: Asked
    had: Had
    idle_bytes: int
    peak_bytes: int
    cpu_s: float

    @property
    def bound_bytes(self) -> int:
        return self.idle_bytes + BOUND_OF_CONVERSIONS + self.asked.consumers * BOUND_PER_CONSUMER

    @property
    def bytes_per_s(self) -> float:
        return self.had.received_bytes / max(self.had.seconds, 1e-9)


# The consumers, in a separate process


@dataclass
class _Consumer:
    """One connection, which repeats the same request."""

    sock: socket.socket
    request: bytes
    asked_at: float = 0.0
    first_byte_s: float | None = None
    head: bytearray = field(default_factory=bytearray)
    received_bytes: int = 0
    responses: int = 0

    def ask(self) -> None:
        self.asked_at = time.monotonic()
        self.received_bytes = 0
        self.head.clear()
        self.sock.sendall(self.request)

    def receive(self, buffer: memoryview) -> int:
        """Receive some bytes, and send the next request at a response's end; return the number of bytes."""
        count = self.sock.recv_into(buffer)
        if not count:
            raise MoverFailed("the server closed the connection")
        if len(self.head) < _HEAD_BYTES:
            self.head += buffer[: min(count, _HEAD_BYTES - len(self.head))]
        self.received_bytes += count
        if self.first_byte_s is None and len(self.head) == _HEAD_BYTES:
            self.first_byte_s = time.monotonic() - self.asked_at
        if len(self.head) >= 4 and self.received_bytes == 4 + int.from_bytes(self.head[:4]):
            check_answer(self.head)
            self.responses += 1
            self.ask()
        return count


#: All of a response to Fetch 3 before its record set, and the sizes at the set's beginning.
_HEAD_BYTES = 100


def check_answer(head: bytearray) -> None:
    """Check that a response has no error, and some messages."""
    # Size, correlation id, throttle time, one topic; its name; one partition: index, error, watermark, size.
    (name_bytes,) = struct.unpack_from(">h", head, 16)
    _, _, error, _, record_set_bytes = struct.unpack_from(">iihqi", head, 18 + name_bytes)
    if error or not record_set_bytes:
        raise MoverFailed(f"Fetch returned error {error} and {record_set_bytes} bytes")


def _fetch_3(topic: str, fetch_bytes: int) -> bytes:
    """Return a request for partition 0 of a topic, from its beginning."""
    name = topic.encode()
    header = struct.pack(">hhih", 1, 3, 1, -1)
    body = struct.pack(">iiii", -1, 1000, 1, fetch_bytes)
    of_topic = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, fetch_bytes)
    frame = header + body + of_topic
    return struct.pack(">i", len(frame)) + frame


def _be_consumers(address: str, asked: Asked) -> None:
    """Connect, report that, wait for the start line, and print the consumers' results."""
    host, port = address.rsplit(":", 1)
    request = _fetch_3(asked.topic, asked.fetch_bytes)
    consumers = [
        _Consumer(socket.create_connection((host, int(port))), request) for _ in range(asked.consumers)
    ]
    print("connected", flush=True)
    sys.stdin.readline()
    buffer = memoryview(bytearray(_READ_BYTES))
    began = last = time.monotonic()
    received = 0
    with selectors.DefaultSelector() as ready:
        for each in consumers:
            ready.register(each.sock, selectors.EVENT_READ, each)
            each.ask()
        while (left := began + asked.seconds - time.monotonic()) > 0:
            for key, _ in ready.select(left):
                received += key.data.receive(buffer)
                last = time.monotonic()
            if asked.once and all(each.responses for each in consumers):
                break
    had = Had(
        last - began,
        received,
        [each.first_byte_s for each in consumers],
        sum(each.responses for each in consumers),
    )
    print(json.dumps(asdict(had)), flush=True)


# The gateway, in a separate process


@dataclass(frozen=True)
class _Server:
    process_id: int
    address: str


@contextmanager
def _serving(command: Sequence[str], log: Path) -> Iterator[_Server]:
    log.unlink(missing_ok=True)
    process = spawn(command, log)
    try:

        def listens() -> bool:
            if process.poll() is not None:
                raise MoverFailed(f"{command} ended with {process.returncode}:\n{tail(log)}")
            return _LISTENING.search(log.read_text()) is not None

        wait_until(listens, "the server")
        found = _LISTENING.search(log.read_text())
        assert found is not None
        yield _Server(process.pid, found[1])
    finally:
        process.kill()
        process.wait()


_LISTENING = re.compile(r"listening on (\S+:\d+)")


def _gateway(upstream: str, chunk_bytes: int, directory: Path) -> AbstractContextManager[_Server]:
    command = [sys.executable, "-m", "bench.gateway", "gateway", "--listen", "127.0.0.1:0"]
    command += ["--upstream", upstream, "--chunk-bytes", str(chunk_bytes)]
    buffer_bytes = _EAGER_CHUNK_BYTES if chunk_bytes == _EAGER_CHUNK_BYTES else _BUFFER_BYTES
    command += ["--buffer-bytes", str(buffer_bytes)]
    return _serving(command, directory / "gateway.log")


def _be_gateway(arguments: Sequence[str]) -> int:
    """Run ``shoal gateway``."""
    if str(_EAGER_CHUNK_BYTES) in arguments:
        _convert_eagerly()
    return shoal_main(["gateway", *arguments])


def _convert_eagerly() -> None:
    """Make this process convert a whole response before it sends the response's length."""
    convert_chunk = DownConversion._convert_chunk

    def convert_all(self: DownConversion, most_source_bytes: int) -> bytearray:
        return convert_chunk(self, _EAGER_CHUNK_BYTES)

    DownConversion._convert_chunk = convert_all  # type: ignore[method-assign]
    converting.CORES = Budget(_EAGER_CHUNK_BYTES)


def _leader(bootstrap: str, topic: str) -> str:
    """Return the address that a server advertises for the leader of partition 0."""
    told = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=30)
    leader = told.brokers[told.topics[topic].partitions[0].leader]
    return f"{leader.host}:{leader.port}"


def _load(bootstrap: str, topic: str, records: int, records_per_batch: int) -> None:
    create_topic(bootstrap, topic)
    dice = random.Random(0)
    first_ms = int(time.time() * 1000) - 3_600_000
    values = (
        (0, first_ms + number, dice.randbytes(_RANDOM_HEX_DIGITS // 2).hex().ljust(_RECORD_BYTES, "x"))
        for number in range(records)
    )
    load_values(bootstrap, topic, "gzip", records_per_batch, values)


# Measuring

_Start = Callable[[int], AbstractContextManager[_Server]]
"""Starts a server with this chunk size in bytes."""


def _run(start: _Start, chunk_bytes: int, asked: Asked) -> Run:
    with start(chunk_bytes) as server:
        address = _leader(server.address, asked.topic)
        consumers = subprocess.Popen(
            [sys.executable, "-m", "bench.gateway", "consumers", address, json.dumps(asdict(asked))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert consumers.stdout is not None
        try:
            consumers.stdout.readline()
            watched = psutil.Process(server.process_id)
            forget_peak_rss_of(server.process_id)
            idle_bytes, before = int(watched.memory_info().rss), watched.cpu_times()
            said, _ = consumers.communicate("go\n", timeout=asked.seconds + 60)
            after = watched.cpu_times()
            peak_bytes = peak_rss_of(server.process_id)
        finally:
            consumers.kill()
            consumers.wait()
    if consumers.returncode:
        raise MoverFailed(f"the consumers ended with {consumers.returncode}")
    had = Had(**json.loads(said))
    cpu_s = after.user + after.system - before.user - before.system
    run = Run(chunk_bytes, asked, had, idle_bytes, peak_bytes, cpu_s)
    say(f"{_conversion(run)}, {asked.consumers} consumers: {_cells(run)}")
    return run


def _compare(start: _Start, arguments: argparse.Namespace) -> list[Run]:
    """Run one consumer and all of them, lazily and eagerly."""
    fetch_bytes = int(arguments.fetch_megabytes * _MEGABYTE)
    alone = Asked(_TOPIC, 1, fetch_bytes, _ALONE_S)
    many = replace(alone, consumers=arguments.consumers, seconds=arguments.seconds)
    return [
        _run(start, _LAZY_CHUNK_BYTES, alone),
        _run(start, _EAGER_CHUNK_BYTES, replace(alone, seconds=_ALONE_EAGERLY_S, once=True)),
        _run(start, _LAZY_CHUNK_BYTES, many),
        _run(start, _EAGER_CHUNK_BYTES, replace(many, seconds=arguments.eager_seconds, once=True)),
    ]


def _sweep(start: _Start, arguments: argparse.Namespace) -> list[Run]:
    asked = Asked(_SMALL_TOPIC, _SWEEP_CONSUMERS, _SMALL_FETCH_BYTES, arguments.sweep_seconds)
    return [_run(start, kib * 1024, asked) for kib in _SWEPT_KIB]


# Reporting

_COLUMNS = (
    "conversion",
    "consumers",
    "idle, MB",
    "**peak, MB**",
    "stated bound, MB",
    "peak over idle, MB a consumer",
    "first message, s: median",
    "longest",
    "MB/s",
    "gateway CPU-s",
    "whole responses",
)


def table(runs: Sequence[Run]) -> str:
    """Return a Markdown table."""
    rows = [(_conversion(each), str(each.asked.consumers), *_cells(each)) for each in runs]
    return markdown(_COLUMNS, rows)


def sweep_table(runs: Sequence[Run]) -> str:
    """Return a Markdown table of runs with chunks of other sizes."""
    columns = (
        "chunk, KiB",
        "peak, MB",
        "peak over idle, KB a consumer",
        "MB/s",
        "CPU-s/GB",
        "first message, ms",
    )
    rows = [
        (
            f"{each.chunk_bytes / 1024:g}",
            f"{each.peak_bytes / _MEGABYTE:.1f}",
            f"{_per_consumer(each) / 1000:,.0f}",
            f"{each.bytes_per_s / _MEGABYTE:.2f}",
            f"{each.cpu_s / max(each.had.received_bytes, 1) * 1e9:.0f}",
            f"{1000 * statistics.median(_first_bytes(each)):.0f}",
        )
        for each in runs
    ]
    return markdown(columns, rows)


def charts(runs: Sequence[Run]) -> str:
    """Return a picture of memory and throughput over chunk sizes, as SVG."""
    rows = [
        {
            "KiB": each.chunk_bytes / 1024,
            "memory": _per_consumer(each) / 1000,
            "throughput": each.bytes_per_s / _MEGABYTE,
            "line": "gateway",
        }
        for each in runs
    ]
    x = ("KiB", "chunk, KiB")
    panels = [
        {**line_layer(rows, x, (name, title), ["gateway"], logarithmic_x=True), "width": 640, "height": 180}
        for name, title in (
            ("memory", "peak over idle, KB a consumer"),
            ("throughput", "MB/s to all consumers"),
        )
    ]
    return svg(panels, "Chunks of down-conversion: memory against throughput")


def _conversion(run: Run) -> str:
    return "eager" if run.chunk_bytes == _EAGER_CHUNK_BYTES else f"lazy, {run.chunk_bytes / 1024:g} KiB"


def _cells(run: Run) -> tuple[str, ...]:
    lazy = run.chunk_bytes == _LAZY_CHUNK_BYTES
    first = _first_bytes(run)
    return (
        f"{run.idle_bytes / _MEGABYTE:.0f}",
        f"**{run.peak_bytes / _MEGABYTE:,.0f}**",
        f"{run.bound_bytes / _MEGABYTE:,.0f}" if lazy else "",
        f"{_per_consumer(run) / _MEGABYTE:.2f}",
        _seconds(statistics.median(first), run),
        _seconds(max(first), run),
        f"{run.bytes_per_s / _MEGABYTE:.2f}",
        f"{run.cpu_s:.1f}",
        str(run.had.responses),
    )


def _per_consumer(run: Run) -> float:
    return (run.peak_bytes - run.idle_bytes) / run.asked.consumers


def _first_bytes(run: Run) -> list[float]:
    return [math.inf if each is None else each for each in run.had.first_byte_s]


def _seconds(first_byte_s: float, run: Run) -> str:
    return f"none in {run.asked.seconds:g}" if math.isinf(first_byte_s) else f"{first_byte_s:.3f}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gateway",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--consumers", type=int, default=50, help="concurrent consumers (default: 50)")
    parser.add_argument(
        "--fetch-megabytes", type=float, default=50, metavar="MB", help="limit of a response (default: 50)"
    )
    parser.add_argument(
        "--seconds", type=float, default=45, metavar="S", help="time of lazy conversion for all (default: 45)"
    )
    parser.add_argument(
        "--eager-seconds", type=float, default=90, metavar="S", help="limit of eager conversion (default: 90)"
    )
    parser.add_argument(
        "--sweep-seconds", type=float, default=8, metavar="S", help="time for each chunk size (default: 8)"
    )
    parser.add_argument(
        "--append", action="store_true", help=f"append to bench/{_RESULTS.name} and draw bench/{_CHART.name}"
    )
    return parser.parse_args()


def _measure(arguments: argparse.Namespace, records: int, directory: Path) -> tuple[list[Run], list[Run]]:
    with KafkaCluster(jvm=BENCH_JVM, heap="1g") as kafka:

        def start(chunk_bytes: int) -> AbstractContextManager[_Server]:
            return _gateway(kafka.bootstrap, chunk_bytes, directory)

        say(f"loading {records * _RECORD_BYTES / _MEGABYTE:,.0f} MB into Kafka")
        _load(kafka.bootstrap, _TOPIC, records, _RECORDS_PER_BATCH)
        _load(
            kafka.bootstrap, _SMALL_TOPIC, _SMALL_FETCH_BYTES * 12 // _RECORD_BYTES, _RECORDS_PER_SMALL_BATCH
        )
        return _compare(start, arguments), _sweep(start, arguments)


def main() -> None:
    if sys.argv[1:2] == ["consumers"]:
        _be_consumers(sys.argv[2], Asked(**json.loads(sys.argv[3])))
        return
    if sys.argv[1:2] == ["gateway"]:
        sys.exit(_be_gateway(sys.argv[2:]))
    arguments = _parse()
    load_before = os.getloadavg()[0]
    # Gzip leaves a tenth of them; the topic needs a little more than one response holds.
    records = int(arguments.fetch_megabytes * 1.2 * 10 * _MEGABYTE / _RECORD_BYTES)
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as scratch:
        runs, sweep = _measure(arguments, records, Path(scratch))
    section = _section(arguments, runs, sweep, load_before)
    print(section)
    if arguments.append:
        with _RESULTS.open("a") as results:
            results.write(section)
        _CHART.write_text(charts(sweep))


def _section(
    arguments: argparse.Namespace, runs: Sequence[Run], sweep: Sequence[Run], load_before: float
) -> str:
    return (
        f"\n## Down-conversion, {datetime.now(UTC):%Y-%m-%d}\n\n"
        f"{machine()}; Kafka {KAFKA_VERSION} (KRaft), the gateway and the consumers on this machine, "
        f"loopback; {versions('kafka-python', 'cramjam')}.\n"
        f"Each consumer asks for {arguments.fetch_megabytes:g} MB of gzip batches of {_RECORDS_PER_BATCH} "
        f"records of {_RECORD_BYTES:,} bytes, by Fetch 3, from the same offset again and again.\n"
        f"The stated bound is the idle process, {BOUND_OF_CONVERSIONS / 1024:,.0f} KiB for conversions under "
        f"way, and for each consumer {BOUND_PER_CONSUMER / 1024:,.0f} KiB, with its buffer of 1,024.\n"
        f"Load of the machine over a minute, before and after: {load_before:.1f} and "
        f"{os.getloadavg()[0]:.1f}.\n\n{table(runs)}\n"
        f"\nChunks of other sizes: {_SWEEP_CONSUMERS} consumers, batches of {_RECORDS_PER_SMALL_BATCH} "
        f"records.\n\n{sweep_table(sweep)}\n\n"
        f"![Memory and throughput over chunk sizes]({_CHART.name})\n"
    )


if __name__ == "__main__":
    main()
