"""Late requests of a killed process: the test chooses when they arrive."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from shoal.client import config as config_module
from shoal.client.connection import Connection
from shoal.client.lot import ACKS_ALL, Gate, Limits, Lot, Sent, open_gate
from shoal.client.opening import open_socket
from shoal.client.send import send
from shoal.mirroring.task import sender
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import decode_produce_request
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.world.control import Watched

__all__ = ["Requests", "arrive"]


class Requests:
    """The batches that workers sent, one in each request, as raw bytes.

    Attributes:
        sent: A copy of each.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Record the requests of every worker of this process."""
        self.sent: list[bytes] = []
        self._before_each: Callable[[], object] = lambda: None
        self._failures: list[BaseException] = []

        def tapped(address: Address, timeout_s: float) -> socket.socket:
            return _through_tap(open_socket(address, timeout_s), self._take)

        def recorded(connection: Connection, lots: Sequence[Lot], limits: Limits, gate: Gate) -> Sent:
            sent = send(connection, lots, limits, gate)
            if self._failures:
                raise self._failures.pop()
            return sent

        monkeypatch.setattr(config_module, "open_socket", tapped)
        monkeypatch.setattr(sender, "send", recorded)

    def acting(self, at_check: int, action: Callable[[], object]) -> Watched:
        """Return a control that acts at a certain check of the lease; each request of a sender is one."""
        control = _ActingOnRequests(at_check, action)
        self._before_each = control.check_lease
        return control

    def _take(self, frames: Sequence[bytes]) -> Iterator[bytes]:
        """Record the requests among some frames, and yield each frame when it may pass on."""
        produced = {number: each for number, frame in enumerate(frames) if (each := _produced(frame))}
        for batches in produced.values():
            self.sent += batches
        for number, frame in enumerate(frames):
            if number in produced:
                try:
                    self._before_each()
                except BaseException as failure:
                    self._failures.append(failure)
                    raise ConnectionAbortedError from failure
            yield frame


def _produced(frame: bytes) -> list[bytes]:
    """Return the record sets of a Produce request; none of a query about several batches."""
    api_key, version = struct.unpack_from(">hh", frame)
    if api_key != ApiKey.PRODUCE:
        return []
    request = decode_produce_request(memoryview(frame), version)
    return [bytes(each.record_set) for each in request.partitions] if request.acks == ACKS_ALL else []


class _ActingOnRequests(Watched):
    """The gate of a sender is open, and what opens it is no check: the checks are those of its requests."""

    _opens = False

    def open_gate(self) -> Gate:
        self._opens = True
        return open_gate()

    def check_lease(self) -> None:
        if self._opens:
            self._opens = False
        else:
            super().check_lease()


def _through_tap(broker: socket.socket, take: Callable[[Sequence[bytes]], Iterator[bytes]]) -> socket.socket:
    """
    Return a connected socket whose frames pass through a function on their way to a broker.

    Args:
        take: Gets frames that came together, without their sizes, and yields those that pass on. If it raises
            an OSError, both ends are closed.

    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    client.settimeout(broker.gettimeout())
    broker.settimeout(None)
    threading.Thread(target=_relay, args=[ours, broker, take], daemon=True).start()
    return client


def _relay(
    client: socket.socket, broker: socket.socket, take: Callable[[Sequence[bytes]], Iterator[bytes]]
) -> None:
    received = bytearray()
    with contextlib.suppress(OSError), client, broker:
        while True:
            for readable in select.select([client, broker], [], [])[0]:
                data = readable.recv(1 << 20)
                if not data:
                    return
                if readable is broker:
                    client.sendall(data)
                    continue
                received += data
                for frame in take(list(_frames(received))):
                    broker.sendall(struct.pack(">i", len(frame)) + frame)


def _frames(received: bytearray) -> Iterator[bytes]:
    """Take the whole frames out of the received bytes."""
    while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4])):
        yield bytes(received[4:end])
        del received[:end]


def arrive(broker: Broker, *requests: bytes, client_id: str = "late") -> list[int]:
    """Deliver requests, one after the other, on a connection of their own; return their error codes."""
    with Wire(broker.bootstrap, client_id) as wire:
        return [wire.produce("topic", each).error_code for each in requests]
