"""A cluster that is far away: the row ``far``.

A proxy in front of one cluster's broker holds all that it forwards for half of the round trip, in each
direction: ``tc netem`` needs a kernel module that not every machine has. The proxy is a process of its own,
and delays bytes, not packets: it has no loss, and TCP's windows grow as on loopback. So the figures are
limits by waiting alone.
"""

import argparse
import contextlib
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cost import compare, loaded
from bench.figures import CPU
from bench.mover import Listeners
from bench.movers import usual_codes
from bench.rows import PATIENT, Row, Settings
from bench.runs import Section
from bench.shoal_movers import Shoal
from bench.topics import B1024
from rig import BENCH_JVM, KafkaCluster, start_in_parallel, wait_until
from rig.process import spawn, tail

__all__ = ["FAR", "serve"]

SPEED_FROM_AFAR = "wire MB/s"
ROUND_TRIP_MS = 80

_CHUNK = 256 * 1024
_HELD_AT_MOST = 128 * 1024 * 1024
_SHAPE = replace(B1024, name="b1024_lz4_p1", partitions=1)
_MEGABYTES = 1000
_BUFFERS = ("16m", "32m", "64m")


def _run(settings: Settings) -> Section:
    settings.clusters.close()
    figures = {}
    for far, buffers in (("source", _BUFFERS), ("destination", _BUFFERS[:1])):
        clusters = [
            KafkaCluster(jvm=BENCH_JVM, heap="1g", config=PATIENT, behind_proxies=side == far)
            for side in ("source", "destination")
        ]
        with start_in_parallel(*clusters) as (source, destination), TemporaryDirectory() as directory:
            topic = loaded(source, _SHAPE, _MEGABYTES * settings.scale)
            distant = source if far == "source" else destination
            with _delayed(distant, Path(directory)) as bootstrap:
                movers = [
                    Shoal(each, ("--fetch-buffer-bytes", size))
                    for each in usual_codes(settings.before)
                    for size in buffers
                ]
                own = {"source": source.bootstrap, "destination": destination.bootstrap}
                addresses = {**own, far: bootstrap}
                listeners = Listeners(addresses["source"], addresses["destination"])
                pair = source, destination
                windows = compare(pair, topic, movers, settings.repeat, listeners)
        for name, turns in windows.items():
            figures[f"far {far}: {name}"] = {
                SPEED_FROM_AFAR: topic.speed(turns, on_wire=True),
                CPU: topic.per_gb(turns, "cpu_s"),
            }
    text = (
        f"One partition, batches of 1,024 records, {ROUND_TRIP_MS} ms of round trip by a proxy that delays."
    )
    return Section("A far cluster", text, figures)


FAR = Row("far", f"one partition, a cluster {ROUND_TRIP_MS} ms away", 4, _run)


@contextmanager
def _delayed(cluster: KafkaCluster, directory: Path) -> Iterator[str]:
    """Run the proxy of a cluster's only broker; provide its address."""
    (ports,) = cluster.proxied_ports.values()
    log = directory / "proxy.log"
    told = [str(ports.advertised), str(ports.behind), str(ROUND_TRIP_MS / 2)]
    process = spawn([sys.executable, "-m", "bench.far", *told], log)
    try:

        def listens() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"the proxy ended:\n{tail(log)}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports.advertised)):
                return True
            return False

        wait_until(listens, "the delaying proxy")
        yield f"127.0.0.1:{ports.advertised}"
    finally:
        process.kill()
        process.wait()


class _Delay:
    """One direction of a connection: bytes arrive, and leave this much later."""

    def __init__(self, receiver: socket.socket, sender: socket.socket, delay_s: float) -> None:
        self._receiver = receiver
        self._sender = sender
        self._delay_s = delay_s
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._changed = threading.Condition()
        for target in (self._receive, self._send):
            threading.Thread(target=target, daemon=True).start()

    def _receive(self) -> None:
        while True:
            try:
                data = self._receiver.recv(_CHUNK)
            except OSError:
                data = b""
            with self._changed:
                self._changed.wait_for(lambda: self._held_bytes < _HELD_AT_MOST)
                self._held.append((time.monotonic() + self._delay_s, data))
                self._held_bytes += len(data)
                self._changed.notify_all()
            if not data:
                return

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held)
                due, data = self._held[0]
            time.sleep(max(0.0, due - time.monotonic()))
            with self._changed:
                self._held.popleft()
                self._held_bytes -= len(data)
                self._changed.notify_all()
            try:
                if not data:
                    self._sender.shutdown(socket.SHUT_WR)
                    return
                self._sender.sendall(data)
            except OSError:
                with contextlib.suppress(OSError):
                    self._receiver.shutdown(socket.SHUT_RD)
                return


def serve(server: socket.socket, behind: int, delay_s: float) -> None:
    """Delay the connections to a listening socket, until it is closed."""
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        broker = socket.create_connection(("127.0.0.1", behind))
        for each in (client, broker):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _Delay(client, broker, delay_s)
        _Delay(broker, client, delay_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listen", type=int, help="port of the loopback for clients")
    parser.add_argument("behind", type=int, help="port of the broker")
    parser.add_argument("milliseconds", type=float, help="delay in each direction")
    told = parser.parse_args()
    with socket.create_server(("127.0.0.1", told.listen)) as server:
        serve(server, told.behind, told.milliseconds / 1000)


if __name__ == "__main__":
    main()
