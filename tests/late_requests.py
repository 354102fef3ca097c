"""Late requests of a killed process: the test chooses when they arrive."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.connection import Connection
from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, Limits, Lot, Sent
from shoal.client.produce import ProduceConnection, Pumped
from shoal.client.send import send
from shoal.mirroring.task import destination_leader
from shoal.protocol.produce import ProduceOutcome, decode_produce_request
from shoal.topic_partition import TopicPartition
from tests.two_brokers import Acting, Killed, Watched

__all__ = ["Doomed", "Requests", "arrive", "given_to_send"]


class Requests:
    """The batches that workers sent, one in each request, as raw bytes.

    Attributes:
        sent: A copy of each.
        killed: Whether the doomed worker was killed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Record the requests of every worker of this process."""
        self.sent: list[bytes] = []
        self.killed = False
        self._left: int | None = None
        self._before_each: Callable[[], object] = lambda: None
        requests = self

        class Watched(ProduceConnection):
            def prepare(self, batches: Mapping[TopicPartition, Sequence[memoryview]]) -> None:
                requests.take(view for views in batches.values() for view in views)
                super().prepare(batches)

            def pump(self, *args: Any, **options: Any) -> Pumped | None:
                tap = _Tap(requests.show, requests.pass_on)
                lend = self._connection.lend

                @contextlib.contextmanager
                def tapped(words: Sequence[int]) -> Iterator[socket.socket]:
                    with lend(words) as lent, tap.between(lent) as ours:
                        yield ours

                with mock.patch.object(self._connection, "lend", tapped):
                    pumped = super().pump(*args, **options)
                if tap.killed is not None:
                    raise tap.killed
                return pumped

        monkeypatch.setattr(destination_leader, "ProduceConnection", Watched)

    def die_after(self, requests: int) -> None:
        """Kill a worker after it has sent this many requests, and one more that never leaves."""
        self._left = requests
        self.killed = False

    def acting(self, at_check: int, action: Callable[[], object]) -> Acting:
        """Return a control that acts at a certain check of the lease; each request of a pump is one."""
        control = _ActingOnPumps(at_check, action)
        self._before_each = control.check_lease
        return control

    def take(self, views: Iterator[memoryview]) -> None:
        self.sent.extend(bytes(view) for view in views)
        self._count()

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                self.killed = True
                raise Killed

    def show(self, frame: bytes) -> None:
        version = int.from_bytes(frame[2:4])
        self.sent += (
            bytes(each.record_set) for each in decode_produce_request(memoryview(frame), version).partitions
        )

    def pass_on(self) -> None:
        self._before_each()
        self._count()


class _ActingOnPumps(Acting):
    """The gate of a pump is open, and what opens it is no check: the checks are those of its requests."""

    _opens = False

    def open_gate(self) -> array[int] | None:
        self._opens = True
        return Watched.open_gate(self)

    def check_lease(self) -> None:
        if self._opens:
            self._opens = False
        else:
            super().check_lease()


class _Tap:
    """A connection's middle: each request of a pump is shown before any of those behind it is passed on.

    Attributes:
        killed: Raised by a call; the pump's connection is closed then.
    """

    def __init__(self, show: Callable[[bytes], None], before_passing: Callable[[], None]) -> None:
        self.killed: Killed | None = None
        self._show = show
        self._before_passing = before_passing
        self._received = bytearray()

    @contextlib.contextmanager
    def between(self, connected: socket.socket) -> Iterator[socket.socket]:
        """Stand between the broker on a socket and a pump, which gets the other one."""
        pump, ours = socket.socketpair()
        with pump, ours, connected.dup() as broker:
            passing = threading.Thread(target=self._run, args=[ours, broker])
            passing.start()
            try:
                yield pump
            finally:
                pump.shutdown(socket.SHUT_RDWR)
                passing.join()

    def _run(self, pump: socket.socket, broker: socket.socket) -> None:
        try:
            while True:
                for readable in select.select([pump, broker], [], [])[0]:
                    data = readable.recv(1 << 20)
                    if not data:
                        return
                    if readable is pump:
                        self._pass_on(data, broker)
                    else:
                        pump.sendall(data)
        except Killed as killed:
            self.killed = killed
        except OSError:
            pass  # one end is gone; the other learns it below
        finally:
            pump.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, data: bytes, broker: socket.socket) -> None:
        received = self._received
        received += data
        frames = []
        while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4])):
            frames.append(bytes(received[:end]))
            del received[:end]
        for frame in frames:
            self._show(frame[4:])
        for frame in frames:
            self._before_passing()
            broker.sendall(frame)


class Doomed(Watched):
    """The control of a task that is killed in the middle of sending: it commits nothing any more."""

    def __init__(self, requests: Requests) -> None:
        super().__init__()
        self._requests = requests

    def membership(self) -> MemberId:
        if self._requests.killed:
            raise Killed
        return super().membership()


def given_to_send(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, die_after: int | None = None
) -> list[bytes]:
    """
    Record the batches that a module gives to the sender, as raw bytes.

    Args:
        die_after: Kill the sender that was to send the next batch after so many; the following ones live.

    """
    given: list[bytes] = []

    def recorded(connection: Connection, lots: Sequence[Lot], limits: Limits, gate: Gate) -> Sent:
        nonlocal die_after
        given.extend(bytes(view) for lot in lots for view in lot.batches)
        if die_after is not None and len(given) > die_after:
            die_after = None
            raise Killed
        return send(connection, lots, limits, gate)

    monkeypatch.setattr(module, "send", recorded)
    return given


def arrive(
    destination: ClientConfig, requests: Sequence[bytes], topic: str = "topic"
) -> list[ProduceOutcome]:
    """Deliver requests, one after the other, on a separate connection; return the responses."""
    partition = TopicPartition(topic, 0)
    with Cluster(destination) as cluster:
        cluster.refresh({topic})
        producer = ProduceConnection(cluster.connect(cluster.partition(partition).leader), timeout_ms=10_000)
        try:
            outcomes = []
            for request in requests:
                producer.send({partition: (memoryview(bytearray(request)),)})
                outcomes.append(producer.receive()[partition])
            return outcomes
        finally:
            producer.close()
