"""
Hostile clients against the gateway: requests that no client sends, over some connections at a time.

The gateway is a process before an embedded broker that has only the versions of Kafka 4. Its options are
small, so that the memory that they allow is small. After each part of the requests, it has to keep these
promises:

- the gateway answered each request, or disconnected, unless the request may wait;
- it still runs, has printed no traceback, and serves another client;
- its threads and sockets are back to their number without clients;
- it never had more memory than at rest and :func:`most_bytes` together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rig.process import peak_rss_of
from rig.shoal import Shoal, serve_gateway
from rig.wait import TimedOut, wait_until
from shoal.client.config import ClientConfig
from shoal.gateway.client_connection import PIECE_BYTES
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal.records.aborted import Marker
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.held import Held, held

from .attackers import attack
from .inputs import TOPICS, Input, draw_input
from .result import Result

__all__ = ["CLIENTS_AT_ONCE", "AttackedGateway", "attack_gateway", "attacked_gateway", "most_bytes"]

CLIENTS_AT_ONCE = 8

#: The requests between two looks: a hundredth of all, or more.
_LEAST_AT_ONCE = 100

_SMALL = GatewaySettings(
    "", 0, ClientConfig("upstream", ()), buffer_bytes=64 * 1024, bytes_in_flight=16 * 1024 * 1024
)


@dataclass
class AttackedGateway:
    """
    The gateway under test, and the broker behind it.

    Attributes:
        rest: The threads and sockets that the gateway has without clients.
        rest_bytes: Its largest memory until then.

    """

    process: Shoal
    broker: Broker
    rest: Held
    rest_bytes: int

    @property
    def address(self) -> str:
        return self.process.address

    def peak_bytes(self) -> int:
        return peak_rss_of(self.process.process_id)

    def ask(self, asked: Iterable[Input]) -> list[str]:
        """Send requests by many clients, read the responses that come, and return the broken promises."""
        host, port = self.address.rsplit(":", 1)
        try:
            hung = attack((host, int(port)), iter(asked), CLIENTS_AT_ONCE).hung
        except ConnectionError as error:
            return [f"no connection: {error}", *self.problems()]
        return [*(f"no response: {each}" for each in hung), *self.problems()]

    def problems(self) -> list[str]:
        """Return the promises that the process has broken so far."""
        if self.process.exit_code is not None:
            return [f"it ended with exit code {self.process.exit_code}: {self.process.stderr[-4000:]}"]
        log = self.process.stdout + self.process.stderr
        return [f"{each}: {log[-4000:]}" for each in ("Traceback", "a request failed") if each in log]

    def left(self) -> list[str]:
        """Serve one more client, and wait until all have left; return what they have left behind."""
        with Wire(self.address) as wire:
            if not wire.call(ApiKey.METADATA, 1, topics=[]).brokers:
                return ["it does not serve another client"]
        with suppress(TimedOut):
            wait_until(lambda: not held(self.process.process_id).exceeds(self.rest), "")
            return []
        return [f"{held(self.process.process_id)} are left, {self.rest} at rest"]


@contextmanager
def attacked_gateway(*options: str) -> Iterator[AttackedGateway]:
    """Serve a gateway with these options before a broker with the topics of hostile requests."""
    with Broker(config={"offset.metadata.max.bytes": "64"}) as broker:
        for name in TOPICS:
            broker.create_topic(name, 2)
            broker.log(name).append_marker(7, 0, Marker.COMMIT)  # so that the log has records
        with serve_gateway(broker.bootstrap, *options) as running:
            with Wire(running.address) as wire:
                wire.call(ApiKey.METADATA, 1, topics=[])
            process = running.process_id
            yield AttackedGateway(running, broker, held(process), peak_rss_of(process))


def most_bytes(limits: GatewaySettings) -> int:
    """Return the memory that options allow for the clients (docs/gateway.md), beyond the rest."""
    of_each = limits.buffer_bytes + limits.chunk_bytes + 2 * PIECE_BYTES
    # A conversion on each core takes up to three times its batch, or the message set that became one.
    converted = 3 * max(limits.largest_batch_bytes, limits.largest_produced_bytes)
    return CLIENTS_AT_ONCE * of_each + limits.bytes_in_flight + (os.cpu_count() or 1) * converted


def attack_gateway(seed: int, requests: int, *, first: int = 0) -> Iterator[Result]:
    """Send so many requests; yield the result so far, and end at a broken promise."""
    result, end = Result("gateway"), first + requests
    at_once = max(_LEAST_AT_ONCE, requests // 100)
    options = "--buffer-bytes", str(_SMALL.buffer_bytes), "--max-bytes-in-flight", str(_SMALL.bytes_in_flight)
    with attacked_gateway(*options) as server:
        most = server.rest_bytes + most_bytes(_SMALL)
        result.see("MB by its options", most / 1e6)
        for begin in range(first, end, at_once):
            numbers = range(begin, min(begin + at_once, end))
            result.problems += server.ask(draw_input(seed, number) for number in numbers)
            if server.process.exit_code is None:
                result.problems += server.left()
                result.see("MB", server.peak_bytes() / 1e6)
                if server.peak_bytes() > most:
                    result.problems.append("it needed more memory than its options allow")
            result.counts["requests"] += len(numbers)
            yield result
            if result.problems:
                break
